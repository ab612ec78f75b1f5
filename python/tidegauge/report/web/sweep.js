// SPDX-License-Identifier: BSD-3-Clause
// Plots the device memory that the points of a sweep need, against one of the swept values.
import { find, make, makeSvg, oncePerFrame } from "./dom.js";
import { formatBytes } from "./format.js";
import { Table } from "./table.js";
import { roundBytes } from "./view.js";

const MARGIN = { left: 72, top: 22, bottom: 40, inner: 16 };
const LETTER = 7; // approximate width in pixels
const LINE = 15;
const DASHES = [null, "6 3", "2 3", "8 3 2 3"];
const LONGEST_LABEL = 28;
const WIDEST_LINEAR = 8; // largest ratio of maximum to minimum on a linear axis

// Shapes distinguish the verdicts for readers who cannot rely on colours.
const SHAPES = {
  fits: "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0",
  "fits after retries": "M-5 5L0 -5L5 5Z",
  "too close to call": "M0 -6L6 0L0 6L-6 0Z",
  "does not fit": "M-5 -5L5 5M-5 5L5 -5",
};

export function showSweep({ sweep }) {
  if (!sweep) return;
  find("sweep").hidden = false;
  const plot = find("sweep-plot");
  plot.setAttribute("aria-label", describe(sweep));
  const draw = oncePerFrame(() => drawPlot(plot, layOutSweep(sweep, plot.clientWidth, plot.clientHeight)));
  new ResizeObserver(draw).observe(plot);
  find("sweep-keys").replaceChildren(...makeKeys(sweep));
  find("sweep-table").replaceChildren(makeTable(sweep));
}

/** The name to use as the axis: the first with varying numbers, or else the first that varies. */
export function chooseAxis({ names, points }) {
  const columns = names.map((_, i) => [...new Set(points.map((point) => point.values[i]))]);
  const numbers = columns.findIndex((values) => values.length > 1 && areNumbers(values));
  return Math.max(0, numbers >= 0 ? numbers : columns.findIndex((values) => values.length > 1));
}

/**
 * In pixels: {marks: [{x, y, low, high, point}], lines: [{label, labelY, path: [{x, y}]}],
 * limits: [{y, label}], across: [{x, label}], up: [{y, label}], box, title}. A line connects points
 * that differ only in the axis value, but not those that are apart. Impossible points have no mark.
 */
export function layOutSweep(sweep, width, height) {
  const axis = chooseAxis(sweep);
  const points = sweep.points.filter((point) => point.fault === undefined);
  const groups = new Map();
  for (const point of points) {
    const others = sweep.names.flatMap((name, i) => (i === axis ? [] : [`${name} ${point.values[i]}`]));
    const key = JSON.stringify(point.is_apart ? [...others, groups.size] : others);
    if (!groups.has(key)) groups.set(key, { label: shorten(others.join(", ")), members: [] });
    groups.get(key).members.push(point);
  }
  const longest = Math.max(...[...groups.values()].map((group) => group.label.length));
  const right = Math.min(longest * LETTER + MARGIN.inner, width * 0.4);
  const box = {
    x: MARGIN.left,
    y: MARGIN.top,
    width: Math.max(width - MARGIN.left - right, 1),
    height: height - MARGIN.top - MARGIN.bottom,
  };
  const devices = new Map(points.filter((p) => p.device).map((p) => [p.device.name, p.device.memory_bytes]));
  const highest = Math.max(1, ...points.map((point) => point.high_bytes), ...devices.values());
  const toY = (bytes) => box.y + box.height * (1 - bytes / highest);
  const values = [...new Set(points.map((point) => point.values[axis]))];
  const places = placeValues(values, box);
  const toMark = (point) => ({
    x: places.get(point.values[axis]),
    y: toY(point.needed_bytes),
    low: toY(point.low_bytes),
    high: toY(point.high_bytes),
    point,
  });
  const lines = [...groups.values()].map(({ label, members }) => {
    const path = members.map(toMark).sort((a, b) => a.x - b.x);
    return { label, path, labelY: path.at(-1).y };
  });
  return {
    box,
    lines: spreadLabels(lines, box.y + box.height),
    marks: lines.flatMap((line) => line.path),
    limits: [...devices].map(([name, bytes]) => placeLimit(`${name} has ${formatBytes(bytes)}`, toY(bytes), lines, box)),
    across: [...places].map(([label, x]) => ({ x, label })).sort((a, b) => a.x - b.x),
    up: [0, ...roundBytes(highest)].map((bytes) => ({ y: toY(bytes), label: formatBytes(bytes) })),
    title: `${shorten(sweep.names[axis])}${spanFar(values) ? " (logarithmic)" : ""}`,
  };
}

/** A line for a device. Its label stands above it at the left, or where the fewest points are near. */
function placeLimit(label, y, lines, box) {
  const width = label.length * LETTER;
  const marks = lines.flatMap(({ path }) => path);
  const covered = ([x, top]) =>
    marks.filter((mark) => Math.abs(mark.x - x - width / 2) < width / 2 + LETTER && mark.high - LINE < top && mark.low + LINE > top)
      .length;
  const left = box.x + 4;
  const middle = box.x + (box.width - width) / 2;
  const places = [left, middle, box.x + box.width - width - 4].flatMap((x) => [[x, y - 5], [x, y + LINE]]);
  const [labelX, labelY] = places.reduce((best, place) => (covered(place) < covered(best) ? place : best));
  return { y, label, labelX, labelY };
}

/** Places numbers to scale (logarithmic if they span a wide range), other values at equal distances. */
function placeValues(values, box) {
  const place = spanFar(values) ? Math.log : Number;
  const numbers = values.map((value, i) => (areNumbers(values) ? place(value) : i));
  const [least, most] = [Math.min(...numbers), Math.max(...numbers)];
  const room = box.width - 2 * MARGIN.inner;
  const share = (number) => (most > least ? (number - least) / (most - least) : 0.5);
  return new Map(values.map((value, i) => [value, box.x + MARGIN.inner + share(numbers[i]) * room]));
}

/** True if values would crowd at the lower end of a linear axis and all are positive. */
function spanFar(values) {
  const least = Math.min(...values.map(Number));
  return areNumbers(values) && least > 0 && Math.max(...values.map(Number)) > WIDEST_LINEAR * least;
}

/** Keeps labels one text line apart: moves them down if they are closer, then up from the bottom. */
function spreadLabels(lines, bottom) {
  const ordered = [...lines].sort((a, b) => a.labelY - b.labelY);
  let free = -Infinity;
  for (const line of ordered) {
    line.labelY = Math.max(line.labelY, free);
    free = line.labelY + LINE;
  }
  free = bottom;
  for (const line of ordered.reverse()) {
    line.labelY = Math.min(line.labelY, free);
    free = line.labelY - LINE;
  }
  return lines;
}

function drawPlot(plot, { box, lines, marks, limits, across, up, title }) {
  const [right, bottom] = [box.x + box.width, box.y + box.height];
  const text = (x, y, anchor, words) => makeSvg("text", { x, y, "text-anchor": anchor }, words);
  const level = (y, kind) => makeSvg("line", { class: kind, x1: box.x, x2: right, y1: y, y2: y });
  let taken = -Infinity;
  const labels = across.filter(({ x, label }) => {
    const half = (shorten(label).length * LETTER) / 2;
    if (x - half < taken) return false;
    taken = x + half + LETTER;
    return true;
  });
  plot.replaceChildren(
    ...up.flatMap(({ y, label }) => [level(y, "grid"), text(box.x - 8, y + 4, "end", label)]),
    ...labels.map(({ x, label }) => text(x, bottom + 16, "middle", shorten(label))),
    text(box.x + box.width / 2, bottom + 34, "middle", title),
    ...limits.map(({ y }) => level(y, "limit")),
    ...lines.map(({ path }, i) =>
      makeSvg("polyline", {
        class: "line",
        points: path.map(({ x, y }) => `${x},${y}`).join(" "),
        "stroke-dasharray": DASHES[i % DASHES.length],
      }),
    ),
    ...marks.map(drawMark),
    ...limits.map(({ label, labelX, labelY }) => text(labelX, labelY, "start", label)),
    ...lines.map(({ label, labelY }) => text(right + 6, labelY + 4, "start", label)),
  );
}

function drawMark({ x, y, low, high, point }) {
  const band = `${formatBytes(point.low_bytes)} to ${formatBytes(point.high_bytes)}`;
  const words = [point.name, ...point.values, `needs ${formatBytes(point.needed_bytes)} (${band})`, point.verdict ?? ""];
  return makeSvg(
    "g",
    {
      class: "point",
      "data-needed": point.needed_bytes,
      "data-low": point.low_bytes,
      "data-high": point.high_bytes,
      "data-verdict": point.verdict,
    },
    makeSvg("title", {}, words.filter(Boolean).join(", ")),
    makeSvg("line", { class: "band", x1: x, x2: x, y1: low, y2: high }),
    drawShape(point.verdict, `translate(${x} ${y})`),
  );
}

function drawShape(verdict, transform) {
  const kind = verdict ?? "fits";
  return makeSvg("path", { class: `mark ${kind.replaceAll(" ", "-")}`, d: SHAPES[kind], transform });
}

function makeKeys({ points }) {
  const judged = new Set(points.map((point) => point.verdict));
  return Object.keys(SHAPES)
    .filter((verdict) => judged.has(verdict))
    .flatMap((verdict) => [
      makeSvg("svg", { viewBox: "-8 -8 16 16", "aria-hidden": "true" }, drawShape(verdict, null)),
      verdict,
    ]);
}

function makeTable({ names, points }) {
  const bytes = (key, title) => ({
    title,
    value: (row) => row[key] ?? -Infinity,
    show: (row) => (Number.isFinite(row[key]) ? formatBytes(row[key]) : ""),
    isNumber: true,
  });
  const verdict = (row) => (row.fault === undefined ? row.verdict ?? "" : `not possible: ${row.fault}`);
  const called = { title: "Checkpointing", value: (row) => row.name, show: (row) => row.name };
  const table = new Table("Memory of each configuration", [
    ...(points.some((point) => point.name) ? [called] : []),
    ...names.map((name, i) => ({ title: name, value: (row) => row.values[i], show: (row) => row.values[i] })),
    { title: "Verdict", value: verdict, show: verdict },
    bytes("needed_bytes", "Needs"),
    bytes("low_bytes", "At least"),
    bytes("high_bytes", "At most"),
    bytes("margin_bytes", "Margin"),
  ]);
  table.setRows(points);
  return table.element;
}

function describe(sweep) {
  const count = (verdict) => sweep.points.filter((point) => point.verdict === verdict).length;
  const verdicts = Object.keys(SHAPES).flatMap((verdict) => (count(verdict) ? [`${count(verdict)}: ${verdict}`] : []));
  const name = sweep.names[chooseAxis(sweep)];
  return [`Bytes that each configuration needs, by ${name}`, ...verdicts, "see the table below for figures"].join("; ");
}

function areNumbers(values) {
  return values.every((value) => value.trim() !== "" && Number.isFinite(Number(value)));
}

function shorten(text) {
  return text.length > LONGEST_LABEL ? `${text.slice(0, LONGEST_LABEL - 1)}…` : text;
}
