// SPDX-License-Identifier: BSD-3-Clause
// Formats figures like the terminal report (report/text.py); a test compares the two.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

/** At most four digits: `512 B`, `1.50 KiB`, `23.4 GiB`. */
export function formatBytes(bytes) {
  if (Math.abs(bytes) < 1024) return `${bytes} B`;
  let value = bytes;
  let unit = 0;
  while (Math.abs(value) >= 1023.5 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const size = Math.abs(value);
  return `${toFixedEven(value, size < 9.995 ? 2 : size < 99.95 ? 1 : 0)} ${UNITS[unit]}`;
}

/** `+1.50 KiB`, `-3 B`; `0 B` has no sign. */
export function formatChange(bytes) {
  return (bytes > 0 ? "+" : "") + formatBytes(bytes);
}

/** `76.9%`. */
export function formatShare(part, whole) {
  return whole ? `${toFixedEven((100 * part) / whole, 1)}%` : "";
}

/** `12 µs`, `3.4 ms`, `12.345 s`, `5 min 03 s`; `digits`: decimal places of seconds. */
export function formatTime(ns, digits = 3) {
  if (ns < 1e3) return `${Math.round(ns)} ns`;
  if (ns < 1e6) return `${trim(ns / 1e3)} µs`;
  if (ns < 1e9) return `${trim(ns / 1e6)} ms`;
  if (ns < 60e9) return `${(ns / 1e9).toFixed(digits)} s`;
  const seconds = Math.floor(ns / 1e9);
  const rest = String(seconds % 60).padStart(2, "0");
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${rest} s`;
  return `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
}

/** `1,234,567`. */
export function formatCount(count) {
  return String(count).replace(/\B(?=(\d{3})+$)/g, ",");
}

/** `3 groups`, `1 group`. */
export function formatNumberOf(count, noun) {
  return `${formatCount(count)} ${noun}${count === 1 ? "" : "s"}`;
}

/** `aten::mm.out` becomes `mm`; other namespaces are kept. */
export function formatOp(op) {
  return op.replace(/^aten::/, "").split(".")[0];
}

function trim(value) {
  return value.toFixed(value < 10 ? 2 : value < 100 ? 1 : 0);
}

/** Like toFixed, but rounds halves to even, as Python does. */
function toFixedEven(value, digits) {
  const text = value.toFixed(digits);
  const scaled = Math.abs(value) * 10 ** digits;
  if (scaled % 1 !== 0.5 || (value * 8) % 1 !== 0) return text; // only eighths can be halves
  const even = 2 * Math.round(scaled / 2);
  return ((Math.sign(value) * even) / 10 ** digits).toFixed(digits);
}
