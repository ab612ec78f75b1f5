// SPDX-License-Identifier: BSD-3-Clause
// The visible part of a timeline: {from, to} in units of its axis. All functions are pure.
import { formatCount, formatTime } from "./format.js";
import { upperBound } from "./timeline.js";

const STARTUP = 0.1; // a start-up that takes more of the run is left out of the first view
const NARROWEST = 1 / 4096; // use the keyboard to distinguish closer moments

/** The view of the whole run; `values` are the positions of the moments on the axis, sorted. */
export function wholeView(values) {
  const from = values.length ? values[0] : 0;
  const to = values.length ? values[values.length - 1] : 1;
  const margin = to > from ? (to - from) * 0.01 : 1;
  return { from, to: to + margin }; // so that the last moment has a width
}

/**
 * The first view of a run: all of it, or without its start-up if that takes much of the axis and
 * does not have the peak. `steps` as of Timeline.steps, `peak` is a moment.
 */
export function firstView(values, steps, whole, peak) {
  const begin = steps.find((step) => step.step > 0);
  if (!begin || begin.first === 0 || peak < begin.first) return whole;
  const from = values[begin.first];
  const idle = (from - whole.from) / (whole.to - whole.from);
  if (idle < STARTUP || !(whole.to > from)) return whole;
  return { from: from - (whole.to - from) * 0.03, to: whole.to };
}

/** Zooms in (`factor` < 1) or out around a point of the axis, which keeps its place. */
export function zoom(view, factor, around, whole, smallest) {
  const width = clamp((view.to - view.from) * factor, smallest, whole.to - whole.from);
  const share = (around - view.from) / (view.to - view.from);
  return moveInto({ from: around - share * width, to: around + (1 - share) * width }, whole);
}

/** Moves the view by a fraction of its width. */
export function pan(view, share, whole) {
  const shift = share * (view.to - view.from);
  return moveInto({ from: view.from + shift, to: view.to + shift }, whole);
}

/** Moves the view as little as needed to show a point of the axis. */
export function reveal(view, point, whole) {
  const width = view.to - view.from;
  if (point < view.from) return moveInto({ from: point - width / 4, to: point + (width * 3) / 4 }, whole);
  if (point > view.to) return moveInto({ from: point - (width * 3) / 4, to: point + width / 4 }, whole);
  return view;
}

/** The narrowest useful view: a few of the closest moments. */
export function smallestWidth(values) {
  let smallest = Infinity;
  for (let i = 1; i < values.length; i += 1) {
    const gap = values[i] - values[i - 1];
    if (gap > 0 && gap < smallest) smallest = gap;
  }
  return Number.isFinite(smallest) ? smallest * 4 : NARROWEST;
}

/** The last moment at or before a point of the axis. */
export function momentAt(values, point) {
  return Math.max(0, upperBound(values, point) - 1);
}

/** The moments visible in [from, to) of the axis, as [first, end); includes the one before `from`. */
export function momentsIn(values, from, to) {
  const first = momentAt(values, from);
  let end = upperBound(values, to);
  while (end > first + 1 && values[end - 1] >= to) end -= 1;
  return [first, Math.max(end, first + 1)];
}

/** Round points in [from, to], at most `count`. */
export function roundPoints(from, to, count) {
  const rough = (to - from) / Math.max(count, 1);
  if (!(rough > 0)) return { step: 1, points: [] };
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((candidate) => candidate >= rough);
  const points = [];
  for (let i = Math.ceil(from / step); i * step <= to; i += 1) points.push(i * step);
  return { step, points };
}

/** Byte values for horizontal lines: multiples of a quarter of a power of two, at most about five. */
export function roundBytes(highest) {
  if (!(highest > 0)) return [];
  let step = 2 ** Math.floor(Math.log2(highest / 2));
  if (highest / step < 3) step /= 2;
  step = Math.max(step, 1);
  const points = [];
  for (let bytes = step; bytes <= highest; bytes += step) points.push(bytes);
  return points;
}

/** The label of a tick; times have enough digits to distinguish neighbouring ticks. */
export function formatTick(value, step, axis) {
  if (axis === "sequence") return formatCount(value);
  if (value === 0) return "0";
  if (step >= 1e9) return formatTime(value, 0);
  if (value >= 60e9) return `${(value / 1e9).toFixed(digitsOf(step, 1e9))} s`;
  const [unit, name] = value >= 1e9 ? [1e9, "s"] : value >= 1e6 ? [1e6, "ms"] : [1e3, "µs"];
  return `${(value / unit).toFixed(digitsOf(step, unit))} ${name}`;
}

function digitsOf(step, unit) {
  return Math.min(9, Math.max(0, -Math.floor(Math.log10(step / unit) + 1e-9)));
}

function moveInto({ from, to }, whole) {
  const shift = Math.max(0, whole.from - from) - Math.max(0, to - whole.to);
  if (to - from >= (whole.to - whole.from) * (1 - 1e-9)) return { ...whole };
  return { from: from + shift, to: to + shift };
}

function clamp(value, low, high) {
  return Math.min(Math.max(value, Math.min(low, high)), high);
}
