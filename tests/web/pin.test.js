// SPDX-License-Identifier: BSD-3-Clause
import assert from "node:assert/strict";
import { test } from "node:test";

import { isAlike } from "../../python/tidegauge/report/web/groups.js";
import { describeBirths, groupStacks } from "../../python/tidegauge/report/web/pin.js";
import { sumRange } from "../../python/tidegauge/report/web/range.js";
import { firstView, wholeView } from "../../python/tidegauge/report/web/view.js";
import { makeTimeline } from "./support.js";

test("stacks of pinned storages are added up, the largest first", () => {
  const rows = [
    { stack: 1, size: 4 },
    { stack: 2, size: 10 },
    { stack: 1, size: 8 },
  ];
  assert.deepEqual(groupStacks(rows), [
    { stack: 1, size: 12, count: 2 },
    { stack: 2, size: 10, count: 1 },
  ]);
});

test("births are described by their steps", () => {
  const born = (...steps) => describeBirths(steps.map((step) => ({ born: step })));
  assert.equal(born(2, 2), "born in step 2");
  assert.equal(born(12, 1, 3), "born in steps 1 to 12");
  assert.equal(born(0), "born in the time before the first step");
  assert.equal(born(0, 3), "born up to step 3");
});

test("a pinned group holds the rows that are in it, whatever their size", () => {
  const row = { category: { name: "Temp" }, module: "Net", op: "mm", tensor: "", name: "", line: "a.py:1 f", size: 4 };
  assert.ok(isAlike(row, "tensor")({ ...row, size: 8 }));
  assert.ok(!isAlike(row, "tensor")({ ...row, line: "a.py:2 f" }));
  assert.ok(isAlike(row, "module")({ ...row, line: "a.py:2 f" }));
});

test("the sums of a range account for its change", () => {
  const timeline = makeTimeline({
    moments: [[1, 1], [2, 2], [3, 3], [4, 4]],
    pieces: [[0, 4, 8, 0], [1, 2, 4, 1], [2, 2, 16, 1]],
  });
  const sums = sumRange(timeline, 0, 3);
  assert.deepEqual(sums, { born: 20, bornCount: 2, freed: 4, freedCount: 1, change: 16, highest: 28 });
  assert.equal(sums.born - sums.freed, sums.change);
  assert.equal(sumRange(timeline, 1, 1).change, 0);
});

test("a value is followed over the moments", () => {
  const timeline = makeTimeline({ moments: [[1, 1], [5, 2], [9, 3]], pieces: [[0, 3, 8, 0]] });
  const changes = { sequence: [2, 5, 100], size: [10, 30, 7], count: 3 };
  assert.deepEqual([...timeline.followMoments(changes)], [0, 30, 30]);
});

test("the first view leaves out a long start-up, but never the peak", () => {
  const steps = [{ step: 0, first: 0 }, { step: 1, first: 2 }];
  const view = (values, peak = 3, begins = steps) => firstView(values, begins, wholeView(values), peak);
  const quick = [0, 1, 2, 100];
  assert.deepEqual(view(quick), wholeView(quick));
  const slow = [0, 1, 20, 100];
  assert.ok(view(slow).from > 17 && view(slow).from < 20);
  assert.equal(view(slow).to, wholeView(slow).to);
  assert.deepEqual(view(slow, 1), wholeView(slow));
  assert.deepEqual(view(slow, 3, [{ step: 1, first: 0 }]), wholeView(slow));
});
