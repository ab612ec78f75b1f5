// SPDX-License-Identifier: BSD-3-Clause
import assert from "node:assert/strict";
import { test } from "node:test";

import { splitCode } from "../../python/tidegauge/report/web/words.js";

test("what stands between backticks is code", () => {
  assert.deepEqual(splitCode("see `a b` and `c`."), [["see ", false], ["a b", true], [" and ", false], ["c", true], [".", false]]);
  assert.deepEqual(splitCode("`a`"), [["a", true]]);
});
