// SPDX-License-Identifier: BSD-3-Clause
import assert from "node:assert/strict";
import { test } from "node:test";

import { formatBand, layOutMap, readSegments } from "../../python/tidegauge/report/web/device_memory.js";
import { packTables } from "./support.js";

function segmentsOf(segments, blocks) {
  const { packed, bytes } = packTables({
    segments: { fields: ["stream", "is_small", "is_expandable", "block_count"], rows: segments },
    blocks: { fields: ["size", "requested", "use"], rows: blocks },
  });
  return readSegments(packed, bytes);
}
const SEGMENTS = segmentsOf(
  [[0, 1, 0, 2], [3, 0, 0, 1]],
  [[1024, 1000, 1], [2048, 0, 0], [5000, 4000, 1]],
);

test("figures of a segment are the sums of its blocks", () => {
  const [small, large] = SEGMENTS.map(({ blocks, ...figures }) => figures);
  assert.deepEqual(small, {
    number: 1, pool: "small", stream: 0, size: 3072, used: 1000, slack: 24, free: 2048, largestFree: 2048,
  });
  assert.deepEqual(large, {
    number: 2, pool: "large", stream: 3, size: 5000, used: 4000, slack: 1000, free: 0, largestFree: 0,
  });
});

test("the map shows every byte once on the given number of lines", () => {
  for (const lines of [1, 7, 24]) {
    const pieces = layOutMap(SEGMENTS, lines);
    const perLine = Math.ceil(8072 / lines);
    const bytes = (kind) =>
      Math.round(pieces.filter((p) => p.kind === kind).reduce((sum, p) => sum + p.width * perLine, 0));
    assert.deepEqual(["used", "slack", "free"].map(bytes), [5000, 1024, 2048]);
    for (const piece of pieces) {
      assert.ok(piece.line < lines && piece.left >= 0 && piece.left + piece.width <= 1 + 1e-9);
    }
  }
  assert.deepEqual(layOutMap([], 3), []);
});

test("a band is shown only if its ends differ", () => {
  assert.equal(formatBand({ low_bytes: 1024, high_bytes: 2048 }), "1.00 KiB to 2.00 KiB");
  assert.equal(formatBand({ low_bytes: 1024, high_bytes: 1024 }), "");
  assert.equal(formatBand({ low_bytes: 1024, high_bytes: 1025 }), "");
});
