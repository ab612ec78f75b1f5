// SPDX-License-Identifier: BSD-3-Clause
// Draws the stacked bytes by category, for the chart, its overview and the small timelines.
import { momentsIn } from "./view.js";

/**
 * The highest moment in each pixel column, as Uint32Array. A column between two moments shows the
 * earlier one.
 */
export function highestOfColumns(timeline, values, view, columns) {
  const moments = new Uint32Array(columns);
  const width = (view.to - view.from) / columns;
  for (let x = 0; x < columns; x += 1) {
    const [first, end] = momentsIn(values, view.from + x * width, view.from + (x + 1) * width);
    moments[x] = timeline.highestIn(first, end);
  }
  return moments;
}

/** The most bytes of one category in the columns of a view. */
export function highestOfCategory(timeline, values, view, columns, category) {
  const split = new Float64Array(timeline.categoryCount);
  let most = 0;
  let before = -1;
  for (const moment of highestOfColumns(timeline, values, view, columns)) {
    if (moment === before) continue;
    before = moment;
    most = Math.max(most, timeline.splitAt(moment, split)[category]);
  }
  return most;
}

/** Draws into the box {x, y, width, height}; its full height stands for `highest` bytes. */
export function drawStack(context, box, { timeline, values, view, categories, highest }) {
  const columns = Math.max(1, Math.floor(box.width));
  const moments = highestOfColumns(timeline, values, view, columns);
  const splits = new Float64Array(columns * timeline.categoryCount);
  const present = new Set();
  for (let x = 0; x < columns; x += 1) {
    const from = x * timeline.categoryCount;
    const split = splits.subarray(from, from + timeline.categoryCount);
    if (x > 0 && moments[x] === moments[x - 1]) split.set(splits.subarray(from - split.length, from));
    else timeline.splitAt(moments[x], split);
    split.forEach((bytes, category) => bytes > 0 && present.add(category));
  }
  const bottom = new Float64Array(columns);
  const scale = highest > 0 ? box.height / highest : 0;
  const y = (bytes) => box.y + box.height - bytes * scale;
  for (const category of categories) {
    if (!present.has(category.id)) continue;
    const path = new Path2D();
    path.moveTo(box.x, y(bottom[0]));
    for (let x = 0; x < columns; x += 1) {
      const top = y(bottom[x] + splits[x * timeline.categoryCount + category.id]);
      path.lineTo(box.x + x, top);
      path.lineTo(box.x + x + 1, top);
    }
    for (let x = columns - 1; x >= 0; x -= 1) {
      path.lineTo(box.x + x + 1, y(bottom[x]));
      path.lineTo(box.x + x, y(bottom[x]));
      bottom[x] += splits[x * timeline.categoryCount + category.id];
    }
    context.fillStyle = category.colour;
    context.fill(path);
  }
}
