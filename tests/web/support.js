// SPDX-License-Identifier: BSD-3-Clause
// Makes tables in the format that C++ writes, from plain arrays.
import { Timeline } from "../../python/tidegauge/report/web/timeline.js";

const GROWING = ["sequence", "time", "first"];

export function encodeColumn(values, isGrowing = false) {
  const bytes = [];
  let last = 0n;
  for (const value of values) {
    let rest = BigInt(value) - (isGrowing ? last : 0n);
    last = BigInt(value);
    for (; rest >= 128n; rest /= 128n) bytes.push(Number(rest % 128n) + 128);
    bytes.push(Number(rest));
  }
  return Uint8Array.from(bytes);
}

/** {count, columns} and the bytes for rows like {first: 1, size: 2}. */
export function packTables(tables) {
  const bytes = [];
  const packed = {};
  for (const [name, { fields, rows }] of Object.entries(tables)) {
    const columns = {};
    fields.forEach((field, i) => {
      const column = encodeColumn(rows.map((row) => row[i]), GROWING.includes(field));
      columns[field] = [bytes.length, column.length];
      bytes.push(...column);
    });
    packed[name] = { count: rows.length, columns };
  }
  return { packed, bytes: Uint8Array.from(bytes) };
}

/** From moments [sequence, time] and pieces [first, length, size, category, module, op, tensor, name, stack, born]. */
export function makeTimeline({ moments, pieces, contexts = [[0, 1, 0, 0]], peak = null, categories = 3 }) {
  const { packed, bytes } = packTables({
    moments: { fields: ["sequence", "time"], rows: moments },
    contexts: { fields: ["first", "step", "activity", "module"], rows: contexts },
    pieces: {
      fields: ["first", "length", "size", "category", "module", "op", "tensor", "name", "stack", "born"],
      rows: pieces.map((piece) => [...piece, 0, 0, 0, 0, 0, 0].slice(0, 10)),
    },
  });
  return new Timeline({ device: "cpu", peak, ...packed }, bytes, categories);
}

/** Pseudo-random numbers in [0, bound), the same in every run. */
export function makeRandom(seed) {
  let state = seed;
  return (bound) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * bound);
  };
}
