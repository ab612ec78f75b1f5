// SPDX-License-Identifier: BSD-3-Clause
// The peak of each training step.
import { find, make, swatch } from "./dom.js";
import { formatBytes, formatChange, formatTime } from "./format.js";
import { describeContext } from "./moment.js";
import { Table } from "./table.js";

/** [{step, moment, peak, change, largest, duration}]; `change` is relative to the previous step. */
export function stepRows(timeline, ordered) {
  const { time } = timeline.moments;
  const split = new Float64Array(timeline.categoryCount);
  let before = null;
  return timeline.stepList.map(({ step, first, end, highest }) => {
    timeline.splitAt(highest, split);
    const largest = ordered.reduce((most, each) => (split[each.id] > split[most.id] ? each : most));
    const peak = timeline.totals[highest];
    const row = {
      step,
      moment: highest,
      peak,
      change: before === null ? 0 : peak - before,
      largest,
      largestBytes: split[largest.id],
      duration: time[Math.min(end, timeline.count - 1)] - time[first],
    };
    before = peak;
    return row;
  });
}

export function showSteps(state, choose) {
  const choice = (row) =>
    make(
      "button",
      { type: "button", class: "link", "data-moment": row.moment, onclick: () => choose(row.moment) },
      row.step ? String(row.step) : "before the first",
    );
  const context = (row) => {
    const text = describeContext(state.get("run"), state.get("timeline").contextAt(row.moment));
    return text.replace(/^(in step [\d,]+|before the first step),? ?/, "");
  };
  const table = new Table("Peaks of the steps", [
    { title: "Step", value: (row) => row.step, show: choice, isNumber: true },
    { title: "Peak", value: (row) => row.peak, show: (row) => formatBytes(row.peak), isNumber: true },
    {
      title: "Change",
      value: (row) => row.change,
      show: (row) => (row.change ? formatChange(row.change) : ""),
      isNumber: true,
    },
    {
      title: "Largest category",
      value: (row) => row.largestBytes,
      show: (row) => [swatch(row.largest), `${row.largest.name} ${formatBytes(row.largestBytes)}`],
    },
    { title: "At the peak", value: context, show: context },
    {
      title: "Duration",
      value: (row) => row.duration,
      show: (row) => formatTime(row.duration),
      isNumber: true,
      isTime: true,
    },
  ]);
  find("steps-table").replaceChildren(table.element);
  state.watch(["timeline"], () => {
    const timeline = state.get("timeline");
    table.hideTimes(state.get("run").is_simulated);
    table.setRows(timeline?.count ? stepRows(timeline, state.get("run").ordered) : []);
  });
}
