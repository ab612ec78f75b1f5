// SPDX-License-Identifier: BSD-3-Clause
// Sentences as a reader wants them.
import { make } from "./dom.js";

/** [text, isCode] of each part: what stands between backticks is code. */
export function splitCode(text) {
  return text.split("`").map((part, i) => [part, i % 2 === 1]).filter(([part]) => part);
}

/** The parts as nodes. */
export function markCode(text) {
  return splitCode(text).map(([part, isCode]) => (isCode ? make("code", {}, part) : part));
}
