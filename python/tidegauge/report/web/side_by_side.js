// SPDX-License-Identifier: BSD-3-Clause
// Several runs in one page: a small timeline for each, on the same scale, and tables of figures.
import { find, make, oncePerFrame, prepareCanvas, swatch } from "./dom.js";
import { formatBytes, formatChange, formatShare } from "./format.js";
import { drawStack } from "./stack.js";
import { Table } from "./table.js";
import { wholeView } from "./view.js";

/** Makes a card for each run; a click on a card shows its run below. */
export function showRuns(page, state, showRun) {
  if (page.runs.length < 2) return;
  find("runs").hidden = false;
  const draws = [];
  const cards = page.runs.map((run) => {
    const canvas = make("canvas", { "aria-hidden": "true" });
    const device = run.devices[0];
    const card = make(
      "button",
      { type: "button", class: "card", "aria-pressed": "false", onclick: () => showRun(run) },
      make("span", { class: "name" }, run.label),
      make("span", { class: "number" }, device ? formatBytes(device.peakBytes) : "nothing tracked"),
      canvas,
    );
    const draw = oncePerFrame(() => drawSmall(canvas, run, page));
    draws.push(draw);
    new ResizeObserver(draw).observe(canvas);
    return card;
  });
  find("run-cards").replaceChildren(...cards);
  state.watch(["run"], () => {
    const shown = page.runs.indexOf(state.get("run"));
    cards.forEach((card, i) => card.setAttribute("aria-pressed", String(i === shown)));
  });
}

/** Uses the scale of the highest run, so that the runs can be compared by eye. */
function drawSmall(canvas, run, page) {
  const { context, width, height } = prepareCanvas(canvas);
  const timeline = run.timeline(0);
  if (!timeline?.count) return;
  const highest = Math.max(...page.runs.map((each) => each.devices[0]?.peakBytes ?? 0), 1);
  const values = timeline.moments[run.is_simulated ? "sequence" : "time"];
  const scene = { timeline, values, view: wholeView(values), categories: run.ordered, highest };
  drawStack(context, { x: 0, y: 0, width, height }, scene);
}

/** The tables of `tidegauge diff`, per device. */
export function showComparison(page) {
  if (!page.comparison) return;
  find("comparison").hidden = false;
  const byName = categoriesByName(page);
  const sections = page.comparison.devices.flatMap((device) => {
    const categories = inOurOrder(device.categories, byName);
    const total = make(
      "p",
      { class: "figure", "data-before": device.total.before_bytes, "data-after": device.total.after_bytes },
      `${device.device}: ${formatBytes(device.total.before_bytes)} before, `,
      `${formatBytes(device.total.after_bytes)} after, ${formatChange(bytesOf(device.total)) || "no change"}`,
    );
    return [
      total,
      ...changeTable(`Categories at the peak of ${device.device}`, categories, byName),
      ...changeTable(`Modules at the peak of ${device.device}`, device.modules, byName),
      ...changeTable(`Tensors at the peak of ${device.device}`, device.tensors, byName),
      ...changeTable(`Lines at the peak of ${device.device}`, device.lines, byName),
    ];
  });
  find("comparison-tables").replaceChildren(...sections);
}

function changeTable(title, changes, byName) {
  if (!changes.length) return [];
  const name = ({ name: text }) => (byName.has(text) ? [swatch(byName.get(text)), text] : text);
  const bytes = (key, heading) => ({
    title: heading,
    value: (row) => row[key],
    show: (row) => formatBytes(row[key]),
    isNumber: true,
  });
  const table = new Table(title, [
    { title: "Name", value: (row) => row.name, show: name, isHead: true, isPath: true },
    bytes("before_bytes", "Before"),
    bytes("after_bytes", "After"),
    { title: "Change", value: bytesOf, show: (row) => formatChange(bytesOf(row)), isNumber: true },
    { title: "", value: growth, show: growth, isNumber: true },
  ]);
  table.setRows(changes);
  return [make("h3", {}, title), table.element];
}

function bytesOf(change) {
  return change.after_bytes - change.before_bytes;
}

function growth(change) {
  if (!change.before_bytes) return "new";
  if (!change.after_bytes) return "gone";
  return (bytesOf(change) > 0 ? "+" : "") + formatShare(bytesOf(change), change.before_bytes);
}

/** The tables of `tidegauge merge`. */
export function showRanks(page, showRank) {
  if (!page.ranks) return;
  find("ranks").hidden = false;
  const missing = page.ranks.missing;
  find("ranks-tables").replaceChildren(
    ...page.ranks.devices.flatMap((device) => rankTables(device, page, showRank)),
    ...(missing ? [make("p", { class: "warning" }, missing)] : []),
  );
}

function rankTables(device, page, showRank) {
  const mean = device.total.mean_bytes;
  const ranks = new Table(`Peaks of the ranks on ${device.device_type}`, [
    {
      title: "Rank",
      value: (row) => row.rank,
      show: (row) =>
        make("button", { type: "button", class: "link", onclick: () => showRank(row.rank) }, String(row.rank)),
      isNumber: true,
    },
    { title: "Device", value: (row) => row.device, show: (row) => row.device },
    { title: "Peak", value: (row) => row.total_bytes, show: (row) => formatBytes(row.total_bytes), isNumber: true },
    {
      title: "Compared to the mean",
      value: (row) => row.total_bytes,
      show: (row) => `${row.total_bytes > mean ? "+" : ""}${formatShare(row.total_bytes - mean, mean)}`,
      isNumber: true,
    },
    { title: "When", value: (row) => row.moment, show: (row) => row.moment },
  ]);
  ranks.setRows(device.ranks);
  const byName = categoriesByName(page);
  const spread = new Table(`Spread over the ranks on ${device.device_type}`, [
    {
      title: "At the peak of each rank",
      value: (row) => row.name,
      show: ({ name }) => (byName.has(name) ? [swatch(byName.get(name)), name] : name),
      isHead: true,
    },
    ...["least", "mean", "most"].map((which) => ({
      title: which[0].toUpperCase() + which.slice(1),
      value: (row) => row[`${which}_bytes`],
      show: (row) => formatBytes(row[`${which}_bytes`]),
      isNumber: true,
    })),
    { title: "Worst rank", value: (row) => row.worst_rank, show: (row) => String(row.worst_rank), isNumber: true },
  ]);
  spread.setRows([...inOurOrder(device.categories, byName), device.total]);
  return [
    make("h3", {}, `Peaks on ${device.device_type}`),
    ranks.element,
    make("h3", {}, `Categories on ${device.device_type}`),
    spread.element,
  ];
}

function categoriesByName(page) {
  return new Map(page.runs[0].ordered.map((category) => [category.name, category]));
}

function inOurOrder(rows, byName) {
  const place = (row) => byName.get(row.name)?.place ?? Infinity;
  return [...rows].sort((a, b) => place(a) - place(b));
}
