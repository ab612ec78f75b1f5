// SPDX-License-Identifier: BSD-3-Clause
// The categories come with the page's data: include/tidegauge/category_table.inc lists them.

/** [{id, name, colour, ...}] in the order of charts, legends and tables; `categories` are by number. */
export function orderCategories(categories) {
  return categories.map((category, id) => ({ id, ...category })).sort((a, b) => a.place - b.place);
}

/** True if black text is easier to read on this colour than white text. */
export function isLight(colour) {
  return luminance(colour) > 0.179;
}

/** Relative luminance as defined by WCAG. */
export function luminance(colour) {
  const parts = [1, 3, 5].map((i) => Number.parseInt(colour.slice(i, i + 2), 16) / 255);
  const [r, g, b] = parts.map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
