// SPDX-License-Identifier: BSD-3-Clause
import { make } from "./dom.js";
import { formatNumberOf } from "./format.js";

const ROWS_AT_ONCE = 100;

/** Stable sort; numbers by value, text in natural order ("b.9" before "b.10"). */
export function sortRows(rows, value, isDescending) {
  const sign = isDescending ? -1 : 1;
  return rows
    .map((row, place) => ({ row, place, key: value(row) }))
    .sort((a, b) => {
      const order =
        typeof a.key === "number" && typeof b.key === "number"
          ? a.key - b.key
          : String(a.key).localeCompare(String(b.key), "en", { numeric: true });
      return sign * order || a.place - b.place;
    })
    .map((entry) => entry.row);
}

/** The classes of the cells of a column. */
function kindOf(column) {
  const kinds = [column.isNumber && "number", column.isShort && "short", column.isTime && "time"];
  return kinds.filter(Boolean).join(" ") || null;
}

/** A long name may break after its dots, not within its words. */
function splitPath(name) {
  return name.split(/(?<=[.:/])/).flatMap((part, i) => (i ? [make("wbr"), part] : [part]));
}

/**
 * A table that sorts by a click on a header. A column is {title, value(row), show(row)}: the sort key
 * and the displayed content. It may be a number (isNumber), a time (isTime), a name that breaks at
 * its dots (isPath), kept on one line (isShort), or the row header (isHead). A long table shows the rest of its rows on demand. `choose(row)` is called for a
 * row that was clicked, or on which Enter was pressed.
 */
export class Table {
  constructor(caption, columns, choose = null) {
    this.columns = columns;
    this.choose = choose;
    this.rows = [];
    this.shown = ROWS_AT_ONCE;
    this.sorted = null; // {column, isDescending}; null: original order
    this.body = make("tbody");
    this.heads = columns.map((column) => this.#head(column));
    this.more = make("button", { type: "button", class: "more", onclick: () => this.#showMore() });
    const table = make(
      "table",
      {},
      make("caption", { class: "for-readers" }, caption),
      make("thead", {}, make("tr", {}, ...this.heads)),
      this.body,
    );
    const scroller = make("div", { class: "scroller", tabindex: 0, role: "region", "aria-label": caption }, table);
    this.element = make("div", { class: "table" }, scroller, this.more);
  }

  setRows(rows) {
    this.rows = rows;
    this.shown = ROWS_AT_ONCE;
    this.#render();
  }

  /** Hides the columns of times (isTime): those of a simulated run mean nothing. */
  hideTimes(isHidden) {
    this.element.classList.toggle("timeless", isHidden);
  }

  #head(column) {
    const sort = () => {
      const isSame = this.sorted?.column === column;
      const isDescending = isSame ? !this.sorted.isDescending : Boolean(column.isNumber);
      this.sorted = { column, isDescending };
      this.#render();
    };
    const button = make("button", { type: "button", onclick: sort }, column.title);
    return make("th", { scope: "col", class: kindOf(column) }, button);
  }

  #render() {
    const rows = this.sorted
      ? sortRows(this.rows, this.sorted.column.value, this.sorted.isDescending)
      : this.rows;
    this.columns.forEach((column, i) => {
      const direction = this.sorted?.isDescending ? "descending" : "ascending";
      const isSorted = this.sorted?.column === column;
      this.heads[i].setAttribute("aria-sort", isSorted ? direction : "none");
    });
    this.body.replaceChildren(...rows.slice(0, this.shown).map((row) => this.#row(row)));
    const left = rows.length - this.shown;
    this.more.hidden = left <= 0;
    this.more.textContent = `Show ${formatNumberOf(left, "more row")}`.replace("more rows", "more");
  }

  #row(row) {
    const cells = this.columns.map((column) => {
      const cell = make(column.isHead ? "th" : "td", { class: kindOf(column), scope: column.isHead && "row" });
      const shown = column.show(row);
      cell.append(...(Array.isArray(shown) ? shown : column.isPath ? splitPath(shown) : [shown]));
      return cell;
    });
    if (!this.choose) return make("tr", {}, ...cells);
    const choose = () => this.choose(row);
    const onkeydown = (event) => event.key === "Enter" && choose();
    return make("tr", { class: "choosable", tabindex: 0, onclick: choose, onkeydown }, ...cells);
  }

  #showMore() {
    this.shown += 10 * ROWS_AT_ONCE;
    this.#render();
  }
}
