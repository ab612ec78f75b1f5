// SPDX-License-Identifier: BSD-3-Clause
// Sentences and commands as a reader wants them.
import { make } from "./dom.js";

/** `tidegauge run train.py`, without the interpreter and the folders of the machine that ran it. */
export function shortenCommand(command) {
  return command.replace(/^\S*python\S*( -[A-Za-ln-z]+)* (-m |\S*\/)tidegauge(?= |$)/, "tidegauge");
}

/** [text, isCode] of each part: what stands between backticks is code. */
export function splitCode(text) {
  return text.split("`").map((part, i) => [part, i % 2 === 1]).filter(([part]) => part);
}

/** The parts as nodes. */
export function markCode(text) {
  return splitCode(text).map(([part, isCode]) => (isCode ? make("code", {}, part) : part));
}
