// SPDX-License-Identifier: BSD-3-Clause
// Checks the palette for each kind of colour vision.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { isLight, luminance, orderCategories } from "../../python/tidegauge/report/web/categories.js";

const TABLE = readFileSync(new URL("../../include/tidegauge/category_table.inc", import.meta.url), "utf8");
/** name -> colour */
const COLOURS = new Map(
  [...TABLE.matchAll(/^TIDEGAUGE_CATEGORY\(\w+, "([^"]+)"[^#]*"(#[0-9a-f]{6})"/gm)].map(([, name, colour]) => [name, colour]),
);

// Matrices in linear RGB: normal vision, and full protan, deutan and tritan deficiency (Machado et
// al. 2009).
const VISIONS = {
  normal: [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
  protan: [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
  deutan: [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
  tritan: [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
};
const COMMON = ["Parameter", "Optstate", "Gradient", "Saved Activation", "Activation", "Temp"];

function toLab(colour, vision) {
  const linear = [1, 3, 5]
    .map((i) => Number.parseInt(colour.slice(i, i + 2), 16) / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
  const seen = times(vision, linear).map((c) => Math.min(Math.max(c, 0), 1));
  const toXyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]];
  const white = [0.9505, 1, 1.089];
  const [x, y, z] = times(toXyz, seen)
    .map((c, i) => c / white[i])
    .map((c) => (c > (6 / 29) ** 3 ? Math.cbrt(c) : c / (3 * (6 / 29) ** 2) + 4 / 29));
  return [116 * y - 16, 500 * (x - y), 200 * (y - z)];
}

function times(matrix, vector) {
  return matrix.map((row) => row.reduce((sum, value, i) => sum + value * vector[i], 0));
}

function difference(a, b, vision) {
  const [one, other] = [toLab(a, vision), toLab(b, vision)];
  return Math.hypot(...one.map((value, i) => value - other[i]));
}

const PAIRS = [...COLOURS].flatMap((a, i) => [...COLOURS].slice(i + 1).map((b) => [a, b]));

for (const [name, vision] of Object.entries(VISIONS)) {
  test(`categories can be distinguished with ${name} vision`, () => {
    for (const [[one, a], [other, b]] of PAIRS) {
      const least = COMMON.includes(one) && COMMON.includes(other) ? 16 : 7;
      const found = difference(a, b, vision);
      assert.ok(found >= least, `${one} and ${other} differ by ${found.toFixed(1)}, expected at least ${least}`);
    }
  });
}

test("text on every colour has enough contrast", () => {
  for (const [name, colour] of COLOURS) {
    const text = isLight(colour) ? 0 : 1;
    const levels = [luminance(colour) + 0.05, text + 0.05].sort((a, b) => b - a);
    assert.ok(levels[0] / levels[1] >= 4.5, name);
  }
});

test("every row of the table has a colour", () => {
  assert.equal(COLOURS.size, [...TABLE.matchAll(/^TIDEGAUGE_CATEGORY\(/gm)].length);
});

test("categories are ordered by their place and keep their number", () => {
  const categories = [{ name: "Temp", place: 160 }, { name: "Parameter", place: 10 }, { name: "Gradient", place: 70 }];
  const ordered = orderCategories(categories);
  assert.deepEqual(ordered.map(({ name }) => name), ["Parameter", "Gradient", "Temp"]);
  assert.deepEqual(ordered.map(({ id }) => id), [1, 2, 0]);
});
