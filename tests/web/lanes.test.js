// SPDX-License-Identifier: BSD-3-Clause
import assert from "node:assert/strict";
import { test } from "node:test";

import { foldLanes, laneSpans, splitLanes } from "../../python/tidegauge/report/web/lanes.js";

test("each unit has its own changes and units are sorted by name", () => {
  const table = { count: 3, unit: [2, 1, 9], time: [5, 6, 7], sequence: [1, 2, 3], state: [2, 2, 0] };
  const lanes = splitLanes({ 1: "blocks.10", 2: "blocks.9" }, table);
  assert.deepEqual(lanes.map((lane) => lane.name), ["(unknown)", "blocks.9", "blocks.10"]);
  assert.deepEqual(lanes[1].changes, [{ time: 5, sequence: 1, state: 2 }]);
});

test("spans fill the whole axis and reductions have no width", () => {
  const changes = [
    { time: 10, state: 2 },
    { time: 20, state: 3 },
    { time: 25, state: 0 },
    { time: 30, state: 1 },
  ];
  assert.deepEqual(laneSpans({ changes }, "time", { from: 0, to: 100 }), [
    { from: 0, to: 10, state: 1 },
    { from: 10, to: 20, state: 2 },
    { from: 25, to: 25, state: 0 },
    { from: 20, to: 30, state: 3 },
    { from: 30, to: 100, state: 1 },
  ]);
});

test("more than eight lanes are folded to the first eight until all are asked for", () => {
  const lanes = Array.from({ length: 33 }, (_, i) => ({ name: `blocks.${i}` }));
  const folded = foldLanes(lanes, true);
  assert.deepEqual(folded.shown, lanes.slice(0, 8));
  assert.equal(folded.button, "Show all 33 units");
  assert.deepEqual(foldLanes(lanes, false), { shown: lanes, button: "Show 8 units" });
  assert.deepEqual(foldLanes(lanes.slice(0, 8), true), { shown: lanes.slice(0, 8), button: "" });
});
