// SPDX-License-Identifier: BSD-3-Clause
// Reads the data of the page: a JSON header, then columns of numbers, deflated (packed by
// report/html.py).
//
//   length of the header (4 bytes) | header | column | column | ...
//
// A table in the header is {"count": rows, "columns": {name: [offset, length]}}.

/** Columns that never decrease are stored as differences. */
const GROWING = new Set(["sequence", "time", "first"]);

/** Returns the header and the bytes that its tables refer to. */
export async function readPage(base64) {
  const bytes = await inflate(fromBase64(base64));
  const length = new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
  return { header, bytes: bytes.subarray(4 + length) };
}

/** Each column of a table as an array of numbers. */
export function readTable(table, bytes) {
  const columns = {};
  for (const [name, [offset, length]] of Object.entries(table.columns)) {
    const part = bytes.subarray(offset, offset + length);
    columns[name] = decodeColumn(part, table.count, GROWING.has(name));
  }
  return { count: table.count, ...columns };
}

/** LEB128: seven bits per byte, lowest first; the eighth bit means that more bytes follow. */
export function decodeColumn(bytes, count, isGrowing = false) {
  const values = new Float64Array(count);
  let at = 0;
  let last = 0;
  for (let i = 0; i < count; i += 1) {
    let value = bytes[at] & 0x7f;
    for (let scale = 128; bytes[at] >= 0x80; scale *= 128) {
      at += 1;
      value += (bytes[at] & 0x7f) * scale; // bit shifts are limited to 32 bits
    }
    at += 1;
    if (isGrowing) last += value;
    values[i] = isGrowing ? last : value;
  }
  if (at !== bytes.length) throw new Error(`a column has ${bytes.length} bytes, ${at} were read`);
  return values;
}

function fromBase64(text) {
  const letters = atob(text.trim());
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i += 1) bytes[i] = letters.charCodeAt(i);
  return bytes;
}

async function inflate(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}
