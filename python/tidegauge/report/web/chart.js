// SPDX-License-Identifier: BSD-3-Clause
// Draws the timeline. chart_input.js handles user input.
import { oncePerFrame, prepareCanvas, themeColour } from "./dom.js";
import { formatBytes, formatCount } from "./format.js";
import { drawStack, highestOfCategory, highestOfColumns } from "./stack.js";
import { ACTIVITIES } from "./timeline.js";
import { formatTick, momentAt, momentsIn, roundBytes, roundPoints } from "./view.js";

export const GUTTER = 76; // space for the byte labels left of the chart
const FAR = 4; // a device with more than this many times the memory in use is not drawn to scale
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

/** Text with an edge in the colour of the card, which stays legible on lines. */
function writeOver(context, text, x, y) {
  context.save();
  context.strokeStyle = themeColour("card");
  context.lineWidth = 4;
  context.lineJoin = "round";
  context.setLineDash([]);
  context.strokeText(text, x, y);
  context.restore();
  context.fillText(text, x, y);
}

export class Chart {
  constructor(canvas, overview, state) {
    this.canvas = canvas;
    this.overview = overview;
    this.state = state;
    const draw = oncePerFrame(() => this.#draw());
    const drawOverview = oncePerFrame(() => this.#drawOverview());
    state.watch(["timeline", "axis", "view", "chosen", "hovered", "theme", "isolated", "range"], draw);
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
    const isolated = this.state.get("isolated");
    const highest = this.#highest(box, isolated);
    const shown = isolated === null ? categories : categories.filter((category) => category.id === isolated);
    this.#drawBytes(context, box, highest);
    drawStack(context, box, { timeline, values, view, categories: shown, highest });
    if (isolated === null) this.#drawReserved(context, box, highest);
    this.#drawAxis(context, box);
    this.#drawSteps(context, box);
    this.#drawActivities(context, box);
    this.#drawRange(context, box);
    this.#drawCursor(context, box, this.state.get("hovered"), [2, 3]);
    this.#drawCursor(context, box, this.state.get("chosen"), []);
    if (isolated !== null) return;
    this.#drawDevice(context, box, highest);
    this.#drawPeak(context, box, highest);
  }

  /** The bytes at the top of the chart: room for the stack, the reserved memory and the device. */
  #highest(box, isolated) {
    const { timeline, values, view } = this.#scene();
    const columns = Math.max(1, Math.floor(box.width));
    if (isolated !== null) return (highestOfCategory(timeline, values, view, columns, isolated) || 1) * 1.08;
    const [first, end] = momentsIn(values, view.from, view.to);
    let seen = timeline.totals[timeline.highestIn(first, end)] || 1;
    const memory = this.#memory();
    if (!memory) return seen * 1.08;
    for (let moment = first; moment < end; moment += 1) seen = Math.max(seen, memory.reserved[moment]);
    const room = memory.deviceBytes <= seen * FAR ? memory.deviceBytes : 0;
    return Math.max(seen, room) * 1.08;
  }

  /** {reserved (bytes by moment), deviceBytes, deviceName} of the shown device; null if it was not replayed. */
  #memory() {
    const run = this.state.get("run");
    const timeline = this.state.get("timeline");
    if (!run.memory || run.memory.traced_device !== timeline.name) return null;
    run.memory.byMoment ??= timeline.followMoments(run.memory.reservedChanges);
    const { byMoment: reserved, device_bytes: deviceBytes, device_name: deviceName } = run.memory;
    return { reserved, deviceBytes, deviceName };
  }

  /** Draws what the allocator would reserve as a curve. */
  #drawReserved(context, box, highest) {
    const memory = this.#memory();
    if (!memory) return;
    const { timeline, values, view } = this.#scene();
    const columns = Math.max(1, Math.floor(box.width));
    const y = (bytes) => box.y + box.height - (bytes / highest) * box.height;
    context.strokeStyle = themeColour("text");
    context.lineWidth = 1.5;
    context.setLineDash([4, 2]);
    context.beginPath();
    highestOfColumns(timeline, values, view, columns).forEach((moment, x) => {
      const top = y(memory.reserved[moment]);
      if (x === 0) context.moveTo(box.x, top);
      context.lineTo(box.x + x, top);
      context.lineTo(box.x + x + 1, top);
    });
    context.stroke();
    context.setLineDash([]);
  }

  /** Draws the memory of the device as a line, or names it at the top if it is far above. */
  #drawDevice(context, box, highest) {
    const memory = this.#memory();
    if (!memory?.deviceBytes) return;
    const isSeen = memory.deviceBytes <= highest;
    const top = isSeen ? box.y + box.height - (memory.deviceBytes / highest) * box.height : box.y;
    context.font = LABEL;
    context.textAlign = "right";
    context.textBaseline = "top";
    context.fillStyle = themeColour("alarm");
    const name = `${memory.deviceName}: ${formatBytes(memory.deviceBytes)}${isSeen ? "" : " ↑"}`;
    writeOver(context, name, box.x + box.width, top + 4);
    if (!isSeen) return;
    context.strokeStyle = themeColour("alarm");
    context.lineWidth = 2;
    context.beginPath();
    context.moveTo(box.x, top);
    context.lineTo(box.x + box.width, top);
    context.stroke();
  }

  #drawRange(context, box) {
    const range = this.state.get("range");
    if (!range) return;
    const { values, view } = this.#scene();
    const clip = (point) => Math.min(Math.max(toPixel(point, view, box), box.x), box.x + box.width);
    const [from, to] = [clip(values[range.first]), clip(values[range.last])];
    context.save();
    context.globalAlpha = 0.18;
    context.fillStyle = themeColour("accent");
    context.fillRect(from, box.y, Math.max(1, to - from), box.height);
    context.restore();
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
    const y = box.y + box.height + STRIP + AXIS;
    const isCounted = axis === "sequence";
    const end = box.x + box.width - (isCounted ? 80 : 24);
    for (const point of points) {
      const x = toPixel(point, view, box);
      if (x < box.x + 12 || x > end) continue;
      context.fillRect(Math.round(x), box.y + box.height + STRIP + 4, 1, 4);
      context.fillText(formatTick(point, step, axis), x, y);
    }
    context.textAlign = "right";
    if (isCounted) context.fillText("events", box.x + box.width, y);
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
    writeOver(context, text, isRight ? x - 8 : x + 8, y - 2);
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
