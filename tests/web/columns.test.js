// SPDX-License-Identifier: BSD-3-Clause
import assert from "node:assert/strict";
import { test } from "node:test";
import { deflateSync } from "node:zlib";

import { decodeColumn, readPage, readTable } from "../../python/tidegauge/report/web/columns.js";
import { encodeColumn, packTables } from "./support.js";

const VALUES = [0, 1, 127, 128, 16383, 16384, 2 ** 31, 2 ** 32 + 5, 2 ** 52];

test("decoded columns equal the encoded ones", () => {
  assert.deepEqual([...decodeColumn(encodeColumn(VALUES), VALUES.length)], VALUES);
  assert.deepEqual([...decodeColumn(encodeColumn(VALUES, true), VALUES.length, true)], VALUES);
});

test("a column with a wrong number of values is an error", () => {
  assert.throws(() => decodeColumn(encodeColumn([1, 2, 3]), 2), /3 bytes, 2 were read/);
});

test("a page consists of a header and the bytes of its tables", async () => {
  const { packed, bytes } = packTables({ moments: { fields: ["time"], rows: [[5], [9]] } });
  const header = new TextEncoder().encode(JSON.stringify({ ...packed, name: "Größe <script>" }));
  const length = new Uint8Array(new Uint32Array([header.length]).buffer);
  const data = deflateSync(Buffer.concat([length, header, bytes])).toString("base64");
  const page = await readPage(`\n${data}\n`);
  assert.equal(page.header.name, "Größe <script>");
  assert.deepEqual([...readTable(page.header.moments, page.bytes).time], [5, 9]);
});
