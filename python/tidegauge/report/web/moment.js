// SPDX-License-Identifier: BSD-3-Clause
// Describes a moment in words.
import { formatBytes, formatCount, formatNumberOf, formatTime } from "./format.js";
import { describePieces, moduleName } from "./groups.js";
import { ACTIVITIES } from "./timeline.js";

/** `in step 2, backward of Net.blocks.3`, the same as in the terminal report. */
export function describeContext(run, { step, activity, module }) {
  const when = step ? `in step ${formatCount(step)}` : "before the first step";
  if (ACTIVITIES[activity] === "optimizer") return `${when}, optimizer step`;
  return activity ? `${when}, ${ACTIVITIES[activity]} of ${moduleName(run, module)}` : when;
}

/** `new: 2.00 MiB by addmm, float32 [1024, 512]`, or `freed: ...`; empty if no bytes changed. */
export function describeChange(run, timeline, moment) {
  const born = describePieces(run, timeline, timeline.bornAt(moment));
  const freed = describePieces(run, timeline, timeline.freedAt(moment));
  const describeRows = (verb, rows) => {
    const [{ size, op, tensor, category }] = rows;
    if (rows.length > 1) return `${verb} ${formatNumberOf(rows.length, "storage")}`;
    const words = [`${verb} ${formatBytes(size)}`, op && `by ${op}`].filter(Boolean).join(" ");
    return [words, tensor, category.name].filter(Boolean).join(", ");
  };
  if (born.length === 1 && freed.length === 1 && born[0].size === freed[0].size) {
    return `${formatBytes(born[0].size)} from ${freed[0].category.name} to ${born[0].category.name}`;
  }
  return [born.length && describeRows("new:", born), freed.length && describeRows("freed:", freed)]
    .filter(Boolean)
    .join("; ");
}

/** One line about a moment, for titles and screen readers. */
export function describeMoment(run, timeline, moment) {
  const mark = moment === timeline.peak ? ", the peak" : "";
  const context = describeContext(run, timeline.contextAt(moment));
  const time = run.is_simulated ? "" : `, ${formatTime(timeline.moments.time[moment])} after the start`;
  const event = formatCount(timeline.moments.sequence[moment]);
  return `${formatBytes(timeline.totals[moment])}${mark}, ${context}${time}, event ${event}`;
}
