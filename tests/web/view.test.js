// SPDX-License-Identifier: BSD-3-Clause
import assert from "node:assert/strict";
import { test } from "node:test";

import * as view from "../../python/tidegauge/report/web/view.js";

const WHOLE = { from: 0, to: 1000 };

test("zooming keeps the point in its place", () => {
  assert.deepEqual(view.zoom(WHOLE, 0.5, 500, WHOLE, 1), { from: 250, to: 750 });
  assert.deepEqual(view.zoom(WHOLE, 0.5, 0, WHOLE, 1), { from: 0, to: 500 });
});

test("a view is never wider than the run nor narrower than a few moments", () => {
  assert.deepEqual(view.zoom({ from: 400, to: 600 }, 100, 500, WHOLE, 1), WHOLE);
  const { from, to } = view.zoom({ from: 400, to: 600 }, 1e-9, 500, WHOLE, 8);
  assert.equal(to - from, 8);
});

test("panning stops at the ends", () => {
  assert.deepEqual(view.pan({ from: 0, to: 100 }, 0.5, WHOLE), { from: 50, to: 150 });
  assert.deepEqual(view.pan({ from: 0, to: 100 }, -3, WHOLE), { from: 0, to: 100 });
  assert.deepEqual(view.pan({ from: 800, to: 900 }, 9, WHOLE), { from: 900, to: 1000 });
});

test("revealing a moment outside the view moves the view to it", () => {
  for (const point of [0, 50, 450, 990]) {
    const { from, to } = view.reveal({ from: 200, to: 300 }, point, WHOLE);
    assert.ok(from <= point && point <= to && to - from === 100);
  }
  const seen = { from: 200, to: 300 };
  assert.equal(view.reveal(seen, 250, WHOLE), seen);
});

test("the moments of a range include the last one before its start", () => {
  const values = Float64Array.from([0, 10, 10, 20, 30]);
  assert.deepEqual(view.momentsIn(values, 0, 10), [0, 1]);
  assert.deepEqual(view.momentsIn(values, 5, 25), [0, 4]);
  assert.deepEqual(view.momentsIn(values, 12, 13), [2, 3]);
  assert.deepEqual(view.momentsIn(values, 40, 50), [4, 5]);
  assert.equal(view.momentAt(values, -5), 0);
});

test("a run with one moment has a view with a width", () => {
  const whole = view.wholeView(Float64Array.from([7]));
  assert.ok(whole.to > whole.from);
  assert.ok(view.smallestWidth(Float64Array.from([7])) > 0);
  assert.equal(view.smallestWidth(Float64Array.from([0, 5, 5, 8])), 12);
});

test("ticks are round and their labels differ", () => {
  const { step, points } = view.roundPoints(0, 1000, 6);
  assert.equal(step, 200);
  assert.deepEqual(points, [0, 200, 400, 600, 800, 1000]);
  const close = view.roundPoints(1.5e9, 1.5e9 + 1e5, 5);
  const texts = close.points.map((point) => view.formatTick(point, close.step, "time"));
  assert.equal(new Set(texts).size, texts.length);
  assert.equal(texts[0], "1.50000 s");
  assert.equal(view.formatTick(1_234_567, 1, "sequence"), "1,234,567");
  assert.deepEqual(view.roundPoints(5, 5, 4).points, []);
});

test("byte lines are few and a power of two apart", () => {
  for (const highest of [1, 3, 1000, 2 ** 20, 2 ** 30 * 7.3, 2 ** 45]) {
    const points = view.roundBytes(highest);
    assert.ok(points.length >= 1 && points.length <= 8, `${highest}: ${points}`);
    assert.equal(Math.log2(points[0]) % 1, 0);
  }
  assert.deepEqual(view.roundBytes(0), []);
});
