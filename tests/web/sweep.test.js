// SPDX-License-Identifier: BSD-3-Clause
import assert from "node:assert/strict";
import { test } from "node:test";

import { chooseAxis, layOutSweep } from "../../python/tidegauge/report/web/sweep.js";

const DEVICE = { name: "small", memory_bytes: 1000 };

function sweepOf(names, rows) {
  const points = rows.map(([values, needed]) =>
    needed === null
      ? { values, fault: "it cannot" }
      : { values, needed_bytes: needed, low_bytes: needed - 10, high_bytes: needed + 20, device: DEVICE },
  );
  return { names, points };
}

test("the axis is the first name with varying numbers, or else the first that varies", () => {
  const axis = (...values) => chooseAxis(sweepOf(values[0].map((_, i) => `${i}`), values.map((v) => [v, 1])));
  assert.equal(axis(["none", "1"], ["full", "2"]), 1);
  assert.equal(axis(["1", "1"], ["1", "2"]), 1);
  assert.equal(axis(["a", "b"], ["a", "c"]), 1);
  assert.equal(axis(["a", "b"]), 0);
});

test("points are placed to scale and an impossible point has no mark", () => {
  const sweep = sweepOf(["batch"], [[["1"], 500], [["5"], 1980], [["2"], 900], [["9"], null]]);
  const { box, marks, limits, lines, across } = layOutSweep(sweep, 600, 320);
  const bytesAt = (y) => Math.round(((box.y + box.height - y) / box.height) * 2000); // the full height is 2000 bytes
  assert.deepEqual(
    marks.map((mark) => [mark.y, mark.low, mark.high].map(bytesAt)),
    [[500, 490, 520], [900, 890, 920], [1980, 1970, 2000]],
  );
  assert.deepEqual(limits.map(({ y, label }) => [bytesAt(y), label]), [[1000, "small has 1000 B"]]);
  assert.deepEqual(across.map(({ label }) => label), ["1", "2", "5"]);
  assert.ok(Math.abs((across[1].x - across[0].x) * 3 - (across[2].x - across[1].x)) < 1e-9);
  assert.deepEqual(lines.map(({ label, path }) => [label, path.length]), [["", 3]]);
});

test("positive numbers that span a wide range have a logarithmic axis", () => {
  const placed = (...values) => {
    const { across, title } = layOutSweep(sweepOf(["batch"], values.map((value) => [[value], 500])), 600, 320);
    const [first, last] = [across[0].x, across.at(-1).x];
    return [title, ...across.map(({ x, label }) => [label, Math.round(((x - first) / (last - first)) * 100)])];
  };
  const far = "batch (logarithmic)";
  assert.deepEqual(placed("16", "1", "4"), [far, ["1", 0], ["4", 50], ["16", 100]]);
  assert.deepEqual(placed("1e-4", "1e-3", "1"), [far, ["1e-4", 0], ["1e-3", 25], ["1", 100]]);
  assert.deepEqual(placed("1", "2", "8"), ["batch", ["1", 0], ["2", 14], ["8", 100]]); // a factor of eight is still linear
  assert.deepEqual(placed("0", "8", "16"), ["batch", ["0", 0], ["8", 50], ["16", 100]]);
  assert.deepEqual(placed("-1", "1", "99"), ["batch", ["-1", 0], ["1", 2], ["99", 100]]);
});

test("points that are apart have marks, but no line leads to them", () => {
  const sweep = sweepOf(["ms"], [[["10"], 500], [["20"], 400], [["15"], 700], [["30"], 300], [["25"], 600]]);
  sweep.points[2].is_apart = sweep.points[4].is_apart = true;
  const { lines, marks } = layOutSweep(sweep, 600, 320);
  assert.deepEqual(lines.map(({ path }) => path.map(({ point }) => point.values[0])), [["10", "20", "30"], ["15"], ["25"]]);
  assert.equal(marks.length, 5);
});

test("each combination of the other names is a line and labels do not overlap", () => {
  const kinds = ["none", "selective", "full"];
  const rows = kinds.flatMap((ac) => ["1", "2"].map((batch) => [[ac, batch], 30]));
  const { lines, marks, box } = layOutSweep(sweepOf(["ac", "batch"], rows), 600, 320);
  assert.deepEqual(lines.map(({ label }) => label), kinds.map((ac) => `ac ${ac}`));
  assert.deepEqual(lines.map(({ path }) => path.map(({ point }) => point.values[1])), Array(3).fill(["1", "2"]));
  assert.equal(marks.length, 6);
  const heights = lines.map(({ labelY }) => labelY).sort((a, b) => a - b);
  assert.ok(heights[1] - heights[0] >= 12 && heights[2] - heights[1] >= 12);
  assert.ok(heights[2] <= box.y + box.height);
});

test("the name of the device stands where the fewest points are", () => {
  const placed = (...rows) => layOutSweep(sweepOf(["batch"], rows), 600, 320).limits[0];
  const [left, right] = [placed([["1"], 100], [["5"], 1980]), placed([["1"], 1010], [["5"], 1980])];
  assert.ok(left.labelX === right.labelX && left.labelY < left.y); // no point is near
  assert.ok(right.labelX > left.labelX || right.labelY > right.y); // one would be covered
});
