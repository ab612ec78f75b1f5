// SPDX-License-Identifier: BSD-3-Clause
import assert from "node:assert/strict";
import { test } from "node:test";

import * as groups from "../../python/tidegauge/report/web/groups.js";
import { sortRows } from "../../python/tidegauge/report/web/table.js";

const PARAMETER = { name: "Parameter", place: 0 };
const TEMP = { name: "Temp", place: 1 };

function row(size, category, module, op = "mm", tensor = "float32 [2]", name = "") {
  const place = module === groups.NO_MODULE ? `${module}.${op}` : module;
  return { size, count: 1, category, module, place, op, tensor, name };
}
const ROWS = [
  row(10, PARAMETER, "Net.fc", "empty", "float32 [2]", "Net.fc.weight"),
  row(4, TEMP, "Net.fc"),
  row(4, TEMP, "Net.fc"),
  row(1, TEMP, "(no module)"),
];

test("equal rows form one group, largest first", () => {
  const byTensor = groups.groupRows(ROWS, "tensor");
  assert.deepEqual(byTensor.map((group) => [group.size, group.count]), [[10, 1], [8, 2], [1, 1]]);
  assert.deepEqual(groups.groupRows(ROWS, "module"), [
    { module: "Net.fc", size: 18, count: 3 },
    { module: "(no module)", size: 1, count: 1 },
  ]);
  assert.deepEqual(groups.groupRows(ROWS, "category"), [
    { category: PARAMETER, size: 10, count: 1 },
    { category: TEMP, size: 9, count: 3 },
  ]);
});

test("a search finds rows that contain all its words in any case", () => {
  assert.equal(groups.searchRows(ROWS, "").length, 4);
  assert.equal(groups.searchRows(ROWS, "FC temp").length, 2);
  assert.equal(groups.searchRows(ROWS, "weight").length, 1);
  assert.equal(groups.searchRows(ROWS, "(no").length, 1);
  assert.equal(groups.searchRows(ROWS, "absent").length, 0);
});

test("the size of every module is the sum of its parts", () => {
  const root = groups.moduleTree([row(5, TEMP, "Net"), ...ROWS, row(2, PARAMETER, "Net.blocks.0.x")]);
  assert.equal(root.size, 26);
  const check = (node) => {
    const below = node.children.reduce((sum, child) => sum + child.size, 0);
    assert.equal(below + node.own.reduce((sum, [, size]) => sum + size, 0), node.size, node.path);
    node.children.forEach(check);
  };
  check(root);
  assert.deepEqual(root.children.map((child) => [child.path, child.size]), [["Net", 25], ["(no module)", 1]]);
});

test("storages without a module are named by what they are for", () => {
  const run = { categories: [PARAMETER, TEMP], modules: {}, ops: { 1: "aten::nll_loss_backward" }, tensors: {}, names: [] };
  const pieces = { size: [8, 4], category: [1, 0], module: [0, 0], op: [1, 0], tensor: [0, 0], stack: [0, 0], born: [1, 1], name: [0, 0] };
  const rows = groups.describePieces({ ...run, strangers: { 1: "the loss" } }, { pieces }, [0, 1]);
  const [none] = groups.moduleTree(rows).children;
  assert.deepEqual([none.path, none.size], ["(no module)", 12]);
  assert.deepEqual(none.children.map(({ name, path, size }) => [name, path, size]), [
    ["the loss", "(no module).the loss", 8],
    ["Parameter", "(no module).Parameter", 4],
  ]);
});

test("flame graph boxes lie side by side within their parents", () => {
  const boxes = groups.layOutFlame(groups.moduleTree(ROWS), 0);
  assert.equal(boxes[0].width, 1);
  for (const box of boxes.slice(1)) {
    const holds = (other) =>
      other.depth === box.depth - 1 &&
      other.left <= box.left + 1e-9 &&
      other.left + other.width >= box.left + box.width - 1e-9;
    assert.ok(boxes.some(holds), box.node.path);
    const overlaps = boxes.some(
      (other) =>
        other !== box &&
        other.depth === box.depth &&
        other.left < box.left + box.width - 1e-9 &&
        box.left < other.left + other.width - 1e-9,
    );
    assert.ok(!overlaps, box.node.path);
  }
  assert.ok(groups.layOutFlame(groups.moduleTree(ROWS), 0.1).length < boxes.length);
});

test("deeply nested names do not overflow the stack", () => {
  const root = groups.moduleTree([row(1, TEMP, Array(20_000).fill("a").join("."))]);
  assert.equal(groups.layOutFlame(root, 0.01).length, 20_002);
});

test("numbers sort by value, text in natural order, and sorting is stable", () => {
  const rows = [{ n: 2, t: "b.10" }, { n: 10, t: "b.9" }, { n: 2, t: "A" }];
  assert.deepEqual(sortRows(rows, (r) => r.n, true).map((r) => r.t), ["b.9", "b.10", "A"]);
  assert.deepEqual(sortRows(rows, (r) => r.t, false).map((r) => r.t), ["A", "b.9", "b.10"]);
});
