// SPDX-License-Identifier: BSD-3-Clause
// Estimated device memory of the run: layers, and the map of segments at the peak.
import { readTable } from "./columns.js";
import { find, make, oncePerFrame, prepareCanvas, themeColour } from "./dom.js";
import { formatBytes, formatCount, formatNumberOf, formatShare } from "./format.js";
import { Table } from "./table.js";

const FREE = 0;
const LINE = 14; // height of a line of the map in pixels
const LINES = 24;

/** [{number, size, used, free, slack, largestFree, blocks: [{size, requested, isFree}]}]. */
export function readSegments(layout, bytes) {
  const segments = readTable(layout.segments, bytes);
  const blocks = readTable(layout.blocks, bytes);
  let next = 0;
  return Array.from({ length: segments.count }, (_, i) => {
    const own = [];
    for (const end = next + segments.block_count[i]; next < end; next += 1) {
      const isFree = blocks.use[next] === FREE;
      own.push({ size: blocks.size[next], requested: blocks.requested[next], isFree });
    }
    const free = own.filter((block) => block.isFree);
    const size = sum(own.map((block) => block.size));
    const unused = sum(free.map((block) => block.size));
    const slack = sum(own.filter((block) => !block.isFree).map((block) => block.size - block.requested));
    return {
      number: i + 1,
      pool: segments.is_expandable[i] ? "expandable" : segments.is_small[i] ? "small" : "large",
      stream: segments.stream[i],
      size,
      used: size - unused - slack,
      slack,
      free: unused,
      largestFree: free.reduce((most, block) => Math.max(most, block.size), 0),
      blocks: own,
    };
  });
}

/**
 * Pieces of the map: {line, left, width (fractions of a line), kind, segment}. Memory continues on
 * the next line, as text does. `kind` is used, slack or free.
 */
export function layOutMap(segments, lines) {
  const total = sum(segments.map((segment) => segment.size));
  const perLine = Math.max(1, Math.ceil(total / lines));
  const pieces = [];
  let at = 0;
  const put = (bytes, kind, segment) => {
    let left = bytes;
    while (left > 0) {
      const line = Math.floor(at / perLine);
      const room = Math.min(left, (line + 1) * perLine - at);
      pieces.push({ line, left: (at % perLine) / perLine, width: room / perLine, kind, segment });
      at += room;
      left -= room;
    }
  };
  for (const segment of segments) {
    for (const block of segment.blocks) {
      if (block.isFree) put(block.size, "free", segment);
      else {
        put(block.requested, "used", segment);
        put(block.size - block.requested, "slack", segment);
      }
    }
  }
  return pieces;
}

/** `1.00 GiB to 2.00 GiB`; empty if the ends are printed alike. */
export function formatBand({ low_bytes, high_bytes }) {
  const [low, high] = [formatBytes(low_bytes), formatBytes(high_bytes)];
  return low === high ? "" : `${low} to ${high}`;
}

export class DeviceMemory {
  constructor(state) {
    this.state = state;
    this.canvas = find("map");
    this.table = new Table("Segments at the peak", [
      { title: "Segment", value: (row) => row.number, show: (row) => formatCount(row.number), isNumber: true },
      { title: "Pool", value: (row) => row.pool, show: (row) => row.pool },
      { title: "Stream", value: (row) => row.stream, show: (row) => String(row.stream), isNumber: true },
      ...["size", "used", "slack", "free"].map((key) => ({
        title: key[0].toUpperCase() + key.slice(1),
        value: (row) => row[key],
        show: (row) => formatBytes(row[key]),
        isNumber: true,
      })),
      {
        title: "Largest free",
        value: (row) => row.largestFree,
        show: (row) => formatBytes(row.largestFree),
        isNumber: true,
      },
      { title: "Blocks", value: (row) => row.blocks.length, show: (row) => formatCount(row.blocks.length), isNumber: true },
    ]);
    find("segments-table").replaceChildren(this.table.element);
    const draw = oncePerFrame(() => this.#draw());
    state.watch(["run"], () => this.#read());
    state.watch(["run", "theme"], draw);
    new ResizeObserver(draw).observe(this.canvas);
    this.canvas.addEventListener("pointermove", (event) => this.#hover(event));
  }

  #read() {
    const { memory } = this.state.get("run");
    find("device-memory").hidden = !memory;
    this.segments = memory?.segments ?? [];
    if (!memory) return;
    find("layers").replaceChildren(
      ...memory.layers.map((layer) =>
        make(
          "tr",
          { class: layer.basis ? null : "sum" },
          make("th", { scope: "row" }, layer.basis ? layer.name : `= ${layer.name}`),
          make("td", { class: "number", "data-bytes": layer.size_bytes }, formatBytes(layer.size_bytes)),
          make("td", { class: "quiet" }, layer.basis ?? ""),
          make("td", { class: "quiet" }, formatBand(layer)),
        ),
      ),
    );
    find("traced-device").textContent = memory.traced_device;
    find("verdict").textContent = memory.verdict;
    find("verdict").hidden = !memory.verdict;
    const [size, free] = [sum(this.segments.map((s) => s.size)), sum(this.segments.map((s) => s.free))];
    const text =
      `${formatNumberOf(this.segments.length, "segment")}, ${formatBytes(size)} reserved, of which ` +
      `${formatBytes(free)} (${formatShare(free, size) || "0%"}) are unused`;
    find("map-text").textContent = text;
    this.canvas.setAttribute("aria-label", `Map of the segments: ${text}`);
    this.table.setRows(this.segments);
    this.pieces = layOutMap(this.segments, LINES);
  }

  #draw() {
    const { context, width } = prepareCanvas(this.canvas);
    let last = null;
    for (const piece of this.pieces ?? []) {
      const y = piece.line * LINE;
      const x = piece.left * width;
      context.fillStyle = themeColour(`memory-${piece.kind}`);
      context.fillRect(x, y, Math.max(piece.width * width, 0.5), LINE - 3);
      if (piece.segment !== last) {
        context.fillStyle = themeColour("text");
        context.fillRect(x, y, 1, LINE - 3);
        last = piece.segment;
      }
    }
  }

  #hover(event) {
    const box = this.canvas.getBoundingClientRect();
    const line = Math.floor((event.clientY - box.top) / LINE);
    const share = (event.clientX - box.left) / box.width;
    const piece = this.pieces?.find(
      (each) => each.line === line && each.left <= share && share < each.left + each.width,
    );
    this.canvas.title = piece
      ? `segment ${piece.segment.number} (${piece.segment.pool}, stream ${piece.segment.stream}): ` +
        `${formatBytes(piece.segment.size)}, ${formatBytes(piece.segment.free)} free`
      : "";
  }
}

function sum(values) {
  return values.reduce((total, value) => total + value, 0);
}
