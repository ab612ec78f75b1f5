// SPDX-License-Identifier: BSD-3-Clause
import assert from "node:assert/strict";
import { test } from "node:test";

import { shortenCommand, splitCode } from "../../python/tidegauge/report/web/words.js";

test("a command is shown without the interpreter that ran it", () => {
  const shown = "tidegauge run train.py --python 3";
  for (const start of ["/a/bin/python /a/bin/", "python -m ", "/usr/bin/python3.11 -B -m "]) {
    assert.equal(shortenCommand(start + shown), shown);
  }
  for (const other of ["python train.py", "/a/python notes/tidegauge.py", "torchrun -m tidegauge run x.py", ""]) {
    assert.equal(shortenCommand(other), other);
  }
});

test("what stands between backticks is code", () => {
  assert.deepEqual(splitCode("see `a b` and `c`."), [["see ", false], ["a b", true], [" and ", false], ["c", true], [".", false]]);
  assert.deepEqual(splitCode("`a`"), [["a", true]]);
});
