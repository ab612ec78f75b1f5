// SPDX-License-Identifier: BSD-3-Clause
// Draws the timeline. chart_input.js handles user input.
import { oncePerFrame, prepareCanvas, themeColour } from "./dom.js";
import { formatBytes, formatCount } from "./format.js";
import { drawStack } from "./stack.js";
import { ACTIVITIES } from "./timeline.js";
import { formatTick, momentAt, momentsIn, roundBytes, roundPoints } from "./view.js";

export const GUTTER = 76; // space for the byte labels left of the chart
const AXIS = 22;
const STRIP = 10; // height of the strip that shows forward, backward, ...
const MARGIN = { top: 22, right: 12 };
const LABEL = "12px system-ui, sans-serif";

/** The position of the stack in a canvas of this size. */
export function stackBox(width, height) {
  const bottom = AXIS + STRIP + 6;
  return {
    x: GUTTER,
    y: MARGIN.top,
    width: Math.max(1, width - GUTTER - MARGIN.right),
    height: Math.max(1, height - MARGIN.top - bottom),
  };
}

/** Converts a point of the axis to pixels, and back. */
export function toPixel(point, view, box) {
  return box.x + ((point - view.from) / (view.to - view.from)) * box.width;
}
export function toPoint(pixel, view, box) {
  return view.from + ((pixel - box.x) / box.width) * (view.to - view.from);
}

export class Chart {
  constructor(canvas, overview, state) {
    this.canvas = canvas;
    this.overview = overview;
    this.state = state;
    const draw = oncePerFrame(() => this.#draw());
    const drawOverview = oncePerFrame(() => this.#drawOverview());
    state.watch(["timeline", "axis", "view", "chosen", "hovered", "theme"], draw);
    state.watch(["timeline", "axis", "view", "chosen", "theme"], drawOverview);
    new ResizeObserver(() => {
      draw();
      drawOverview();
    }).observe(canvas);
  }

  #draw() {
    const { timeline, values, view, categories } = this.#scene();
    const { context, width, height } = prepareCanvas(this.canvas);
    if (!timeline?.count) return;
    Object.assign(this.canvas.dataset, { from: view.from, to: view.to });
    const box = stackBox(width, height);
    const [first, end] = momentsIn(values, view.from, view.to);
    const seen = timeline.totals[timeline.highestIn(first, end)];
    const highest = (seen || 1) * 1.08;
    this.#drawBytes(context, box, highest);
    drawStack(context, box, { timeline, values, view, categories, highest });
    this.#drawAxis(context, box);
    this.#drawSteps(context, box);
    this.#drawActivities(context, box);
    this.#drawPeak(context, box, highest);
    this.#drawCursor(context, box, this.state.get("hovered"), [2, 3]);
    this.#drawCursor(context, box, this.state.get("chosen"), []);
  }

  #scene() {
    const timeline = this.state.get("timeline");
    const values = timeline?.moments[this.state.get("axis")];
    return { timeline, values, view: this.state.get("view"), categories: this.state.get("run").ordered };
  }

  #drawBytes(context, box, highest) {
    context.font = LABEL;
    context.textAlign = "right";
    context.textBaseline = "middle";
    context.lineWidth = 1;
    for (const bytes of [0, ...roundBytes(highest)]) {
      const y = Math.round(box.y + box.height - (bytes / highest) * box.height) + 0.5;
      context.strokeStyle = themeColour("line");
      context.beginPath();
      context.moveTo(box.x, y);
      context.lineTo(box.x + box.width, y);
      context.stroke();
      context.fillStyle = themeColour("quiet");
      context.fillText(formatBytes(bytes), box.x - 8, y);
    }
  }

  #drawAxis(context, box) {
    const view = this.state.get("view");
    const axis = this.state.get("axis");
    const { step, points } = roundPoints(view.from, view.to, box.width / 110);
    context.font = LABEL;
    context.textAlign = "center";
    context.textBaseline = "alphabetic";
    context.fillStyle = themeColour("quiet");
    for (const point of points) {
      const x = toPixel(point, view, box);
      if (x < box.x + 12 || x > box.x + box.width - 24) continue;
      context.fillRect(Math.round(x), box.y + box.height + STRIP + 4, 1, 4);
      context.fillText(formatTick(point, step, axis), x, box.y + box.height + STRIP + AXIS);
    }
  }

  /** Draws a line at the start of each step, with its number if there is room. */
  #drawSteps(context, box) {
    const { timeline, values, view } = this.#scene();
    const [first, end] = momentsIn(values, view.from, view.to);
    let room = -Infinity;
    context.font = LABEL;
    context.textAlign = "left";
    context.textBaseline = "alphabetic";
    for (const step of timeline.stepList) {
      if (step.step === 0 || step.first >= end || step.end <= first) continue;
      const x = Math.max(box.x, toPixel(values[step.first], view, box));
      if (x < room) continue;
      const text = `step ${formatCount(step.step)}`;
      room = x + Math.max(24, context.measureText(text).width + 12);
      context.fillStyle = themeColour("quiet");
      context.fillText(text, x + 4, box.y - 8);
      context.fillRect(Math.round(x), box.y - 18, 1, 18);
    }
  }

  #drawActivities(context, box) {
    const { timeline, values, view } = this.#scene();
    const colours = ACTIVITIES.map((activity) => themeColour(activity || "line"));
    for (let x = 0; x < box.width; x += 1) {
      const moment = momentAt(values, toPoint(box.x + x, view, box));
      context.fillStyle = colours[timeline.contextAt(moment).activity];
      context.fillRect(box.x + x, box.y + box.height + 3, 1, STRIP - 3);
    }
  }

  #drawPeak(context, box, highest) {
    const { timeline, values, view } = this.#scene();
    const x = toPixel(values[timeline.peak], view, box);
    if (x < box.x - 0.5 || x > box.x + box.width + 0.5) return;
    const y = box.y + box.height - (timeline.totals[timeline.peak] / highest) * box.height;
    const text = `peak ${formatBytes(timeline.totals[timeline.peak])}`;
    context.fillStyle = themeColour("text");
    context.beginPath();
    context.arc(x, y, 4, 0, 2 * Math.PI);
    context.fill();
    context.font = `600 ${LABEL}`;
    context.textBaseline = "bottom";
    const isRight = x + 12 + context.measureText(text).width > box.x + box.width;
    context.textAlign = isRight ? "right" : "left";
    context.fillText(text, isRight ? x - 8 : x + 8, y - 2);
  }

  #drawCursor(context, box, moment, dash) {
    const { values, view } = this.#scene();
    if (moment === null) return;
    const x = toPixel(values[moment], view, box);
    if (x < box.x || x > box.x + box.width) return;
    context.strokeStyle = themeColour("text");
    context.lineWidth = 1;
    context.setLineDash(dash);
    context.beginPath();
    context.moveTo(Math.round(x) + 0.5, box.y);
    context.lineTo(Math.round(x) + 0.5, box.y + box.height + STRIP);
    context.stroke();
    context.setLineDash([]);
  }

  /** Draws the whole run and marks the part that the chart shows. */
  #drawOverview() {
    const { timeline, values, view, categories } = this.#scene();
    const { context, width, height } = prepareCanvas(this.overview);
    if (!timeline?.count) return;
    const whole = this.state.get("whole");
    const box = { x: GUTTER, y: 0, width: width - GUTTER - MARGIN.right, height };
    const highest = timeline.totals[timeline.highestIn(0, timeline.count)] || 1;
    drawStack(context, box, { timeline, values, view: whole, categories, highest });
    const [from, to] = [toPixel(view.from, whole, box), toPixel(view.to, whole, box)];
    context.fillStyle = themeColour("veil");
    context.fillRect(box.x, 0, from - box.x, height);
    context.fillRect(to, 0, box.x + box.width - to, height);
    context.strokeStyle = themeColour("accent");
    context.lineWidth = 2;
    context.strokeRect(from + 1, 1, Math.max(2, to - from - 2), height - 2);
  }
}
