// SPDX-License-Identifier: BSD-3-Clause
// Makes elements without markup: text from a trace always becomes text, never HTML.

/** `make("td", {class: "size"}, "text", child)`; a property that starts with "on" is a listener. */
export function make(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/** The same for SVG. Takes the namespace from an SVG element in the page, so that the page contains no URL. */
export function makeSvg(tag, properties = {}, ...children) {
  const { namespaceURI } = document.querySelector("svg");
  return fill(document.createElementNS(namespaceURI, tag), properties, children);
}

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children);
  return element;
}

export function find(id) {
  return document.getElementById(id);
}

/** A coloured mark for a category, shown beside its name. */
export function swatch(category) {
  const mark = make("span", { class: "swatch", "aria-hidden": "true" });
  mark.style.backgroundColor = category.colour;
  return mark;
}

/** Gives the canvas the resolution of the screen. Returns its context in CSS pixels, and its size. */
export function prepareCanvas(canvas) {
  const { clientWidth: width, clientHeight: height } = canvas;
  const ratio = window.devicePixelRatio || 1;
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height };
}

/** Returns a function that schedules `draw` for the next frame, at most once per frame. */
export function oncePerFrame(draw) {
  let isWaiting = false;
  return () => {
    if (isWaiting) return;
    isWaiting = true;
    requestAnimationFrame(() => {
      isWaiting = false;
      draw();
    });
  };
}

/** A colour of the style sheet, so that canvases follow the theme. */
export function themeColour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
