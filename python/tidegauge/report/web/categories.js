// SPDX-License-Identifier: BSD-3-Clause
// One order everywhere, from what stays for the whole run to what is gone at once: the stack of the
// chart from below, legends, tables. The colours differ enough for colour-blind readers, too, which
// a test computes; families share a hue (parameters are blue, gradients red, activations green).

const PALETTE = [
  ["Parameter", "#9dbdf5"],
  ["Sharded Param", "#4869a1"],
  ["Unsharded Param", "#9dd3f7"],
  ["Post-Forward Shard", "#21b3d3"],
  ["Buffer", "#9693eb"],
  ["Optstate", "#7349b5"],
  ["Gradient", "#b5331a"],
  ["Sharded Grad", "#ad766c"],
  ["Unsharded Grad", "#cd4d0b"],
  ["All Gather", "#decd74"],
  ["Reduce Scatter", "#7a5a33"],
  ["All Reduce", "#e89f1e"],
  ["Inputs", "#933b5e"],
  ["Saved Activation", "#6ccfa0"],
  ["Activation", "#1b918c"],
  ["Temp", "#909859"],
  ["Step Temp", "#a70f82"],
  ["Other", "#baaaac"],
  ["Untracked", "#c7ccd7"],
];

/** [{id, name, colour}] in our order; `names` are those of the trace, by number. */
export function orderCategories(names) {
  const places = new Map(PALETTE.map(([name, colour], place) => [name, { place, colour }]));
  return names
    .map((name, id) => ({ id, name, ...(places.get(name) ?? { place: PALETTE.length, colour: "#888888" }) }))
    .sort((a, b) => a.place - b.place || a.id - b.id);
}

export const COLOURS = new Map(PALETTE);

/** Whether black is easier to read on it than white. */
export function isLight(colour) {
  return luminance(colour) > 0.179;
}

/** Relative luminance, as WCAG has it. */
export function luminance(colour) {
  const parts = [1, 3, 5].map((i) => Number.parseInt(colour.slice(i, i + 2), 16) / 255);
  const [r, g, b] = parts.map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
