// SPDX-License-Identifier: BSD-3-Clause
// Elements without markup: all text of a trace becomes text, never HTML.

/** `make("td", {class: "size"}, "text", child)`; a property that starts with "on" is a listener. */
export function make(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/** The same of SVG, whose namespace the page's own SVG tells: no address is in the page, not even that. */
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

/** The colour of a category beside its name. */
export function swatch(category) {
  const mark = make("span", { class: "swatch", "aria-hidden": "true" });
  mark.style.backgroundColor = category.colour;
  return mark;
}

/** A canvas as sharp as the screen; returns its context, in CSS pixels, and its size. */
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

/** Calls it once before the next frame, however often it was asked for. */
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
