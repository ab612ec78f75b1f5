// SPDX-License-Identifier: BSD-3-Clause
// What the user pinned by a click on a row or a block: its bytes at the chosen moment and over the run,
// and where it was allocated.
import { find, make } from "./dom.js";
import { formatBytes, formatCount, formatNumberOf, formatShare } from "./format.js";
import { describePieces, sumSizes } from "./groups.js";

const SHOWN_STACKS = 5;

/** [{stack, size, count}], the largest first. */
export function groupStacks(rows) {
  const groups = new Map();
  for (const { stack, size } of rows) {
    const group = groups.get(stack) ?? { stack, size: 0, count: 0 };
    group.size += size;
    group.count += 1;
    groups.set(stack, group);
  }
  return [...groups.values()].sort((a, b) => b.size - a.size);
}

/** `born in step 2`, `born in steps 1 to 12`. */
export function describeBirths(rows) {
  const first = rows.reduce((least, row) => Math.min(least, row.born), Infinity);
  const last = rows.reduce((most, row) => Math.max(most, row.born), 0);
  const name = (step) => (step ? `step ${formatCount(step)}` : "the time before the first step");
  if (first === last) return `born in ${name(first)}`;
  return first ? `born in steps ${formatCount(first)} to ${formatCount(last)}` : `born up to ${name(last)}`;
}

export class Pin {
  constructor(state) {
    this.state = state;
    find("unpin").addEventListener("click", () => state.set({ pinned: null }));
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape") state.set({ pinned: null });
    });
    state.watch(["pinned", "timeline", "chosen"], () => this.#show());
  }

  #show() {
    const pinned = this.state.get("pinned");
    const timeline = this.state.get("timeline");
    find("pinned").hidden = !pinned || !timeline?.count;
    if (find("pinned").hidden) return;
    const run = this.state.get("run");
    const all = describePieces(run, timeline, timeline.aliveAt(this.state.get("chosen")));
    const rows = all.filter(pinned.holds);
    const share = formatShare(sumSizes(rows), sumSizes(all));
    find("pinned-label").textContent = pinned.label;
    find("pinned-bytes").textContent = rows.length
      ? `${formatBytes(sumSizes(rows))} in ${formatNumberOf(rows.length, "storage")} (${share}) at this moment, ` +
        `${describeBirths(rows)}`
      : "nothing of it is alive at this moment";
    this.#showStacks(run, rows);
  }

  #showStacks(run, rows) {
    const groups = groupStacks(rows).filter((group) => run.stacks[group.stack]);
    const shown = groups.slice(0, SHOWN_STACKS).map((group) =>
      make(
        "li",
        {},
        make("span", {}, `${formatBytes(group.size)} in ${formatNumberOf(group.count, "storage")}, allocated at`),
        make("ol", { class: "frames" }, ...run.stacks[group.stack].map((frame) => make("li", {}, frame))),
      ),
    );
    const rest = groups.length - shown.length;
    if (rest > 0) shown.push(make("li", { class: "quiet" }, `and ${formatNumberOf(rest, "other stack")}`));
    find("pinned-stacks").replaceChildren(...shown);
    find("pinned-hint").hidden = run.hasLines;
  }
}
