// SPDX-License-Identifier: BSD-3-Clause
import assert from "node:assert/strict";
import { test } from "node:test";

import { highestOfColumns } from "../../python/tidegauge/report/web/stack.js";
import { stepRows } from "../../python/tidegauge/report/web/steps.js";
import { upperBound } from "../../python/tidegauge/report/web/timeline.js";
import { wholeView } from "../../python/tidegauge/report/web/view.js";
import { makeRandom, makeTimeline } from "./support.js";

/** Random pieces over `count` moments, and their sums by brute force. */
function randomTimeline(seed, count) {
  const random = makeRandom(seed);
  const pieces = Array.from({ length: count }, () => {
    const first = random(count);
    return [first, 1 + random(count - first), 1 + random(1000), random(3)];
  }).sort((a, b) => a[0] - b[0]);
  const moments = Array.from({ length: count }, (_, i) => [i + 1, i * 10 + random(10)]);
  const sums = Array.from({ length: count }, () => [0, 0, 0]);
  for (const [first, length, size, category] of pieces) {
    for (let m = first; m < first + length; m += 1) sums[m][category] += size;
  }
  return { timeline: makeTimeline({ moments, pieces }), sums, pieces, random };
}

test("splits and totals at every moment are the sums of the live pieces", () => {
  for (const count of [1, 15, 16, 64, 65, 700]) {
    const { timeline, sums, pieces } = randomTimeline(count, count);
    for (let m = 0; m < count; m += 1) {
      assert.deepEqual([...timeline.splitAt(m)], sums[m]);
      assert.equal(timeline.totals[m], sums[m][0] + sums[m][1] + sums[m][2]);
      const alive = pieces.flatMap(([first, length], i) => (first <= m && m < first + length ? [i] : []));
      assert.deepEqual(timeline.aliveAt(m), alive);
    }
  }
});

test("the highest moment of any range is its first maximum", () => {
  const { timeline, random } = randomTimeline(5, 1000);
  for (let i = 0; i < 2000; i += 1) {
    const first = random(1000);
    const end = first + 1 + random(1000 - first);
    let best = first;
    for (let m = first; m < end; m += 1) if (timeline.totals[m] > timeline.totals[best]) best = m;
    assert.equal(timeline.highestIn(first, end), best);
  }
});

test("at every width, one pixel column shows the peak", () => {
  const { timeline } = randomTimeline(9, 3000);
  const values = timeline.moments.time;
  for (const columns of [1, 7, 100, 1999]) {
    const drawn = highestOfColumns(timeline, values, wholeView(values), columns);
    assert.ok(drawn.includes(timeline.peak));
  }
});

test("born and freed pieces account for every change", () => {
  const timeline = makeTimeline({
    moments: [[1, 0], [2, 5], [3, 9]],
    pieces: [[0, 2, 8, 0], [1, 2, 4, 1]],
  });
  assert.deepEqual(timeline.bornAt(1), [1]);
  assert.deepEqual(timeline.freedAt(1), []);
  assert.deepEqual(timeline.freedAt(2), [0]);
});

test("steps come from contexts and have their highest moment", () => {
  const timeline = makeTimeline({
    moments: [[1, 0], [2, 10], [3, 20], [4, 30]],
    pieces: [[0, 4, 8, 0], [2, 1, 4, 1]],
    contexts: [[0, 0, 0, 0], [1, 1, 1, 5], [3, 2, 0, 0]],
  });
  assert.deepEqual(timeline.contextAt(2), { step: 1, activity: 1, module: 5 });
  assert.deepEqual(timeline.steps(), [
    { step: 0, first: 0, end: 1, highest: 0 },
    { step: 1, first: 1, end: 3, highest: 2 },
    { step: 2, first: 3, end: 4, highest: 3 },
  ]);
  timeline.stepList = timeline.steps();
  const rows = stepRows(timeline, [{ id: 1 }, { id: 0 }]);
  assert.deepEqual(rows.map((row) => [row.step, row.peak, row.change, row.largestBytes, row.duration]), [
    [0, 8, 0, 8, 10],
    [1, 12, 4, 8, 20],
    [2, 8, -4, 8, 0],
  ]);
});

test("the peak in the header is the highest moment", () => {
  const moments = [[3, 0], [7, 5], [9, 9]];
  const timeline = makeTimeline({ moments, pieces: [[0, 3, 8, 0]], peak: { sequence: 7 } });
  assert.equal(timeline.peak, 1);
});

test("upperBound counts values up to and including the bound", () => {
  assert.equal(upperBound([1, 3, 3, 5], 3), 3);
  assert.equal(upperBound([1, 3, 3, 5], 0), 0);
  assert.equal(upperBound([], 1), 0);
});
