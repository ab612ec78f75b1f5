// SPDX-License-Identifier: BSD-3-Clause
// Prepares the page's header for the other modules.
import { orderCategories } from "./categories.js";
import { readTable } from "./columns.js";
import { readSegments } from "./device_memory.js";
import { splitLanes } from "./lanes.js";
import { Timeline } from "./timeline.js";

/** The runs of the page. A timeline is decoded when it is first shown. */
export function openPage({ header, bytes }) {
  const ordered = orderCategories(header.categories);
  const categories = [...ordered].sort((a, b) => a.id - b.id);
  return { ...header, runs: header.runs.map((run) => openRun(run, bytes, categories, ordered)) };
}

function openRun(run, bytes, categories, ordered) {
  const timelines = new Map();
  const memory = run.memory && {
    ...run.memory,
    segments: readSegments(run.memory.layout, bytes),
    reservedChanges: readTable(run.memory.reserved, bytes),
  };
  return {
    ...run,
    categories,
    ordered,
    memory,
    ...readStacks(run.stacks ?? {}),
    lanes: splitLanes(run.units, readTable(run.lanes, bytes)),
    devices: run.devices.map((device) => ({ ...device, peakBytes: device.peak?.total_bytes ?? 0 })),
    timeline(number) {
      if (!run.devices[number]) return null;
      if (!timelines.has(number)) {
        const timeline = new Timeline(run.devices[number], bytes, categories.length);
        timeline.stepList = timeline.steps();
        timelines.set(number, timeline);
      }
      return timelines.get(number);
    },
  };
}

/** {stacks: {id: [frame, ...]}, lines: {id: "train.py:25 Net.forward"}, hasLines}; innermost frame first. */
function readStacks(stacks) {
  const split = Object.fromEntries(Object.entries(stacks).map(([id, text]) => [id, text.split("\n")]));
  const isLine = /:\d+ ./;
  const lines = Object.fromEntries(
    Object.entries(split).map(([id, [first]]) => [id, isLine.test(first) ? first : ""]),
  );
  return { stacks: split, lines, hasLines: Object.values(lines).some(Boolean) };
}
