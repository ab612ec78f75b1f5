// SPDX-License-Identifier: BSD-3-Clause
// tests/python/report/test_html.py compares formatted bytes with those of Python.
import assert from "node:assert/strict";
import { test } from "node:test";

import * as format from "../../python/tidegauge/report/web/format.js";

test("bytes have at most four digits", () => {
  const cases = { 0: "0 B", 1023: "1023 B", 1024: "1.00 KiB", 1152: "1.12 KiB", 102912: "100 KiB" };
  for (const [bytes, text] of Object.entries(cases)) assert.equal(format.formatBytes(Number(bytes)), text);
  assert.equal(format.formatChange(-3), "-3 B");
  assert.equal(format.formatChange(2048), "+2.00 KiB");
  assert.equal(format.formatChange(0), "0 B");
});

test("times have a suitable unit", () => {
  const cases = { 12: "12 ns", 3400: "3.40 µs", 12.3e6: "12.3 ms", 1.5e9: "1.500 s", 303e9: "5 min 03 s" };
  for (const [ns, text] of Object.entries(cases)) assert.equal(format.formatTime(Number(ns)), text);
  assert.equal(format.formatTime(3_720e9), "1 h 02 min");
});

test("counts, shares and ops are formatted", () => {
  assert.equal(format.formatCount(1234567), "1,234,567");
  assert.equal(format.formatNumberOf(1, "row"), "1 row");
  assert.equal(format.formatNumberOf(2000, "row"), "2,000 rows");
  assert.equal(format.formatShare(1, 3), "33.3%");
  assert.equal(format.formatShare(1, 0), "");
  assert.equal(format.formatOp("aten::mm.out"), "mm");
  assert.equal(format.formatOp("c10d::allreduce_"), "c10d::allreduce_");
});
