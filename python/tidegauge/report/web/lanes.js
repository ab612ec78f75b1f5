// SPDX-License-Identifier: BSD-3-Clause
// FSDP units: a lane for each on the axis of the timeline, and a table of their bytes.
import { GUTTER, stackBox, toPixel } from "./chart.js";
import { find, make, oncePerFrame, prepareCanvas, themeColour } from "./dom.js";
import { formatBytes, formatNumberOf, formatShare, formatTime } from "./format.js";
import { Table } from "./table.js";

/** Indexed by the column `state`; 0 is a reduction. */
export const UNIT_STATES = ["reduced", "sharded", "gathering", "whole", "post-forward-shard"];
const LANE = 22;
const FOLDED = 8;
const UNIT_COLUMNS = ["Sharded", "Whole", "Gathered", "Reduced"];

/** [{name, changes: [{time, sequence, state}]}], sorted by the names of the units. */
export function splitLanes(units, table) {
  const lanes = new Map(Object.entries(units).map(([id, name]) => [Number(id), { name, changes: [] }]));
  for (let i = 0; i < table.count; i += 1) {
    if (!lanes.has(table.unit[i])) lanes.set(table.unit[i], { name: "(unknown)", changes: [] });
    const change = { time: table.time[i], sequence: table.sequence[i], state: table.state[i] };
    lanes.get(table.unit[i]).changes.push(change);
  }
  return [...lanes.values()].sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
}

/** [{from, to, state}] on the axis; a lane starts as sharded. For a reduction, `from` equals `to`. */
export function laneSpans(lane, axis, whole) {
  const spans = [];
  let state = 1;
  let since = whole.from;
  for (const change of lane.changes) {
    const point = Math.max(change[axis], whole.from);
    if (change.state === 0) {
      spans.push({ from: point, to: point, state: 0 });
      continue;
    }
    spans.push({ from: since, to: point, state });
    since = point;
    state = change.state;
  }
  spans.push({ from: since, to: whole.to, state });
  return spans;
}

/** The lanes to show, and the text of the button that shows the others; empty if there are no others. */
export function foldLanes(lanes, isFolded) {
  const shown = isFolded ? lanes.slice(0, FOLDED) : lanes;
  if (lanes.length <= FOLDED) return { shown, button: "" };
  return { shown, button: isFolded ? `Show all ${lanes.length} units` : `Show ${FOLDED} units` };
}

export class Lanes {
  constructor(canvas, state) {
    this.canvas = canvas;
    this.state = state;
    const draw = oncePerFrame(() => this.#draw());
    this.table = makeUnitTable(state.get("run").categories);
    find("units-table").replaceChildren(this.table.element);
    this.isFolded = true;
    find("all-lanes").addEventListener("click", () => {
      this.isFolded = !this.isFolded;
      this.#describe();
      draw();
    });
    state.watch(["device"], () => this.#describe());
    state.watch(["run", "timeline", "axis", "view", "theme"], draw);
    new ResizeObserver(draw).observe(canvas);
  }

  #describe() {
    const lanes = this.state.get("run").lanes;
    find("units").hidden = lanes.length === 0;
    const { shown, button } = foldLanes(lanes, this.isFolded);
    this.shown = shown;
    find("all-lanes").hidden = button === "";
    find("all-lanes").textContent = button;
    this.canvas.style.height = `${this.shown.length * LANE + 4}px`;
    const rows = lanes.map((lane) => {
      const count = (state) => lane.changes.filter((change) => change.state === state).length;
      const gathered = formatNumberOf(count(2), "time");
      return make("li", {}, `${lane.name}: gathered ${gathered}, reduced ${formatNumberOf(count(0), "time")}`);
    });
    find("units-text").replaceChildren(...rows);
    const units = this.state.get("device")?.units ?? [];
    find("units-at-peak").hidden = units.length === 0;
    this.table.hideTimes(this.state.get("run").is_simulated);
    this.table.setRows(units);
  }

  #draw() {
    const { context, width, height } = prepareCanvas(this.canvas);
    const lanes = this.shown;
    const view = this.state.get("view");
    if (!lanes.length || !view) return;
    const box = stackBox(width, height);
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    lanes.forEach((lane, i) => {
      const y = i * LANE + 3;
      context.fillStyle = themeColour("text");
      context.textAlign = "right";
      context.fillText(shorten(context, lane.name, GUTTER - 12), box.x - 8, y + LANE / 2 - 1);
      this.#drawLane(context, lane, box, y, view);
    });
  }

  #drawLane(context, lane, box, y, view) {
    let drawnTo = -1; // skip spans that end in a pixel already drawn
    for (const span of laneSpans(lane, this.state.get("axis"), this.state.get("whole"))) {
      if (span.to < view.from || span.from > view.to) continue;
      const from = Math.max(box.x, toPixel(span.from, view, box));
      const to = Math.min(box.x + box.width, toPixel(span.to, view, box));
      const isQuiet = span.state === 1;
      if (span.state === 0) {
        context.fillStyle = themeColour("reduced");
        context.fillRect(from - 1, y - 1, 3, LANE - 4);
      } else if (!isQuiet || to - from >= 1 || to > drawnTo) {
        context.fillStyle = themeColour(UNIT_STATES[span.state]);
        const [top, tall] = isQuiet ? [y + LANE / 2 - 3, 3] : [y, LANE - 6];
        context.fillRect(from, top, Math.max(1, to - from), tall);
        drawnTo = Math.max(drawnTo, to);
      }
    }
  }
}

/** The same table of units at the peak as in the terminal report. */
function makeUnitTable(categories) {
  const bytes = (title) => {
    const counted = categories.filter((category) => category.unit_column === title.toLowerCase());
    const value = (unit) => counted.reduce((sum, { name }) => sum + (unit.categories[name] ?? 0), 0);
    return { title, value, show: (unit) => formatBytes(value(unit)), isNumber: true };
  };
  return new Table("FSDP units at the peak", [
    { title: "Unit", value: (unit) => unit.name, show: (unit) => unit.name, isHead: true, isPath: true },
    {
      title: "Share",
      value: (unit) => unit.peak_share,
      show: (unit) => formatShare(unit.peak_share, 1),
      isNumber: true,
    },
    ...UNIT_COLUMNS.map(bytes),
    {
      title: "Longest whole",
      value: (unit) => unit.longest_whole_ns,
      show: (unit) => formatTime(unit.longest_whole_ns),
      isNumber: true,
      isTime: true,
    },
  ]);
}

/** Cuts the beginning, because the end of a module's name is more specific. */
function shorten(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let rest = text.slice(-64);
  while (rest && context.measureText(`…${rest}`).width > width) rest = rest.slice(1);
  return `…${rest}`;
}
