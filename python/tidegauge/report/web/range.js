// SPDX-License-Identifier: BSD-3-Clause
// A selected part of the timeline, and what happened in it.
import { find } from "./dom.js";
import { formatBytes, formatNumberOf, formatTime } from "./format.js";

/** What was born and freed in the moments after `first` up to `last`, and the highest of all. */
export function sumRange(timeline, first, last) {
  const { size } = timeline.pieces;
  const sum = (numbers) => numbers.reduce((total, i) => total + size[i], 0);
  const result = { born: 0, bornCount: 0, freed: 0, freedCount: 0 };
  for (let moment = first + 1; moment <= last; moment += 1) {
    const [born, freed] = [timeline.bornAt(moment), timeline.freedAt(moment)];
    result.born += sum(born);
    result.bornCount += born.length;
    result.freed += sum(freed);
    result.freedCount += freed.length;
  }
  result.change = timeline.totals[last] - timeline.totals[first];
  result.highest = timeline.totals[timeline.highestIn(first, last + 1)];
  return result;
}

export class Range {
  constructor(state) {
    this.state = state;
    find("range-end").addEventListener("click", () => state.set({ range: null }));
    state.watch(["range", "timeline"], () => this.#show());
  }

  #show() {
    const range = this.state.get("range");
    const timeline = this.state.get("timeline");
    find("range").hidden = !range || !timeline?.count;
    if (find("range").hidden) return;
    const { first, last } = range;
    const sums = sumRange(timeline, first, last);
    const { time, sequence } = timeline.moments;
    const length = this.state.get("run").is_simulated
      ? formatNumberOf(sequence[last] - sequence[first], "event")
      : formatTime(time[last] - time[first]);
    const sign = sums.change > 0 ? "+" : "";
    find("range-text").textContent =
      `Selected ${length}: ${formatBytes(sums.born)} allocated in ${formatNumberOf(sums.bornCount, "storage")}, ` +
      `${formatBytes(sums.freed)} freed in ${formatNumberOf(sums.freedCount, "storage")}, ` +
      `${sign}${formatBytes(sums.change)} in all; highest ${formatBytes(sums.highest)}.`;
  }
}
