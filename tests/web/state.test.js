// SPDX-License-Identifier: BSD-3-Clause
import assert from "node:assert/strict";
import { test } from "node:test";

import { State } from "../../python/tidegauge/report/web/state.js";

test("listeners are notified once, and only if a watched value changed", () => {
  const state = new State({ a: 1, b: 2, c: 3 });
  const heard = [];
  state.watch(["a", "b"], () => heard.push([state.get("a"), state.get("b")]));
  state.set({ a: 5, b: 6 });
  state.set({ c: 9 });
  state.set({ a: 5 });
  assert.deepEqual(heard, [[1, 2], [5, 6]]);
});
