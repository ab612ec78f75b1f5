// SPDX-License-Identifier: BSD-3-Clause
// The chosen moment: bytes by category, and the live storages, grouped, sorted and searched.
import { find, make, swatch } from "./dom.js";
import { formatBytes, formatCount, formatNumberOf, formatShare } from "./format.js";
import { describePieces, groupRows, isAlike, NO_LINE, searchRows, sumSizes } from "./groups.js";
import { Table } from "./table.js";

const COLUMNS = {
  size: { title: "Bytes", value: (row) => row.size, show: (row) => formatBytes(row.size), isNumber: true },
  count: { title: "Count", value: (row) => row.count, show: (row) => formatCount(row.count), isNumber: true },
  category: {
    title: "Category",
    value: (row) => row.category.place,
    show: (row) => [swatch(row.category), row.category.name],
  },
  tensor: {
    title: "Tensor",
    value: (row) => row.tensor,
    show: (row) => row.tensor || "unknown",
    isShort: true,
  },
  module: { title: "Module", value: (row) => row.module, show: (row) => row.module, isPath: true },
  op: { title: "Op", value: (row) => row.op, show: (row) => row.op },
  name: { title: "Name", value: (row) => row.name, show: (row) => row.name, isPath: true },
  line: { title: "Line", value: (row) => row.line, show: (row) => row.line, isPath: true },
};
const SHOWN = {
  tensor: ["size", "count", "category", "tensor", "module", "op", "name"],
  module: ["size", "count", "module"],
  category: ["size", "count", "category"],
  line: ["size", "count", "line"],
};

export class Alive {
  constructor(state) {
    this.state = state;
    this.tables = Object.fromEntries(
      Object.entries(SHOWN).map(([by, names]) => [
        by,
        new Table("Live storages at the chosen moment", names.map((name) => COLUMNS[name]), (group) =>
          state.set({ pinned: { label: labelOf(group), holds: isAlike(group, by) } }),
        ),
      ]),
    );
    find("group-by").addEventListener("change", () => this.#renderTable());
    find("search").addEventListener("input", () => this.#renderTable());
    find("only-old").addEventListener("change", () => this.#renderTable());
    state.watch(["timeline", "chosen"], () => this.#read());
  }

  #read() {
    const timeline = this.state.get("timeline");
    if (!timeline?.count) return;
    const chosen = this.state.get("chosen");
    const run = this.state.get("run");
    this.rows = describePieces(run, timeline, timeline.aliveAt(chosen));
    this.step = timeline.contextAt(chosen).step;
    find("by-line").hidden = !run.hasLines;
    if (!run.hasLines && find("group-by").value === "line") find("group-by").value = "tensor";
    this.#renderComposition(timeline, timeline.splitAt(chosen));
    this.#renderTable();
  }

  #renderComposition(timeline, split) {
    const total = split.reduce((sum, bytes) => sum + bytes, 0);
    const present = this.state.get("run").ordered.filter((category) => split[category.id] > 0);
    find("composition").replaceChildren(
      ...present.map((category) => {
        const bytes = split[category.id];
        return make(
          "li",
          { "data-category": category.name, "data-bytes": bytes },
          swatch(category),
          make("span", { class: "name" }, category.name),
          make("span", { class: "number" }, formatBytes(bytes)),
          make("span", { class: "number quiet" }, formatShare(bytes, total)),
        );
      }),
    );
    find("composition-bar").replaceChildren(
      ...present.map((category) => {
        const part = make("span", { title: `${category.name} ${formatBytes(split[category.id])}` });
        part.style.backgroundColor = category.colour;
        part.style.flexGrow = String(split[category.id] / total);
        return part;
      }),
    );
  }

  #renderTable() {
    const by = find("group-by").value;
    const old = (row) => row.born > 0 && row.born < this.step;
    const candidates = find("only-old").checked ? this.rows.filter(old) : this.rows;
    const rows = searchRows(candidates, find("search").value);
    const groups = groupRows(rows, by);
    const table = this.tables[by];
    table.setRows(groups);
    if (find("alive-table").firstElementChild !== table.element) {
      find("alive-table").replaceChildren(table.element);
    }
    const [found, all] = [sumSizes(rows), sumSizes(this.rows)];
    const ofAll = found === all ? "" : ` of ${formatBytes(all)}`;
    const storages = formatNumberOf(rows.length, "storage");
    find("alive-count").textContent =
      `${formatNumberOf(groups.length, "group")}, ${storages}, ${formatBytes(found)}${ofAll}`;
  }
}

/** A name for a group of storages: what its row in the table says. */
function labelOf(group) {
  const { name, tensor, category, module, op, line } = group;
  const words = [name || tensor, category?.name, name ? "" : module, op, line].filter(Boolean);
  return words.filter((word) => word !== NO_LINE).join(", ") || NO_LINE;
}
