// SPDX-License-Identifier: BSD-3-Clause
import { readTable } from "./columns.js";

const CHUNK = 64; // moments between two stored splits
const FAN = 16; // children of a node in the pyramid

export const ACTIVITIES = ["", "forward", "backward", "recompute", "optimizer"];

/**
 * The live storages ("pieces") of one device over time (src/analyze/timeline.h).
 *
 *   pieces          [====)  [=======)    alive from one moment to another
 *   totals          _--___-------__      bytes at each moment
 *   pyramid         the highest of 16 moments, of 256, ...: the highest of any range is found in a
 *                   few steps
 *   stored splits   |       |       |    bytes by category at every 64th moment; the others are
 *                                        replayed from there
 */
export class Timeline {
  constructor(device, bytes, categoryCount) {
    this.name = device.device;
    this.categoryCount = categoryCount;
    this.moments = readTable(device.moments, bytes);
    this.contexts = readTable(device.contexts, bytes);
    this.pieces = readTable(device.pieces, bytes);
    this.count = this.moments.count;
    this.#sortChanges();
    this.#sumUp();
    this.#buildPyramid();
    this.peak = device.peak ? this.momentOf(device.peak.sequence) : this.highestIn(0, this.count);
  }

  /** The moment of the event with this number, or the last moment before it. */
  momentOf(sequence) {
    return Math.max(0, upperBound(this.moments.sequence, sequence) - 1);
  }

  /** The highest moment in [first, end); the first one if several are equal. */
  highestIn(first, end) {
    let best = first;
    for (let i = first; i < end; ) {
      let level = 0;
      let span = 1;
      while (this.levels[level + 1] && i % (span * FAN) === 0 && i + span * FAN <= end) {
        level += 1;
        span *= FAN;
      }
      const candidate = level === 0 ? i : this.levels[level][i / span];
      if (this.totals[candidate] > this.totals[best]) best = candidate;
      i += span;
    }
    return best;
  }

  /** Bytes by category at a moment. */
  splitAt(moment, split = new Float64Array(this.categoryCount)) {
    const chunk = Math.floor(moment / CHUNK);
    const from = chunk * this.categoryCount;
    split.set(this.splits.subarray(from, from + this.categoryCount));
    for (let m = chunk * CHUNK; m <= moment; m += 1) this.#change(m, split);
    return split;
  }

  /** Numbers of the pieces that are alive at a moment. */
  aliveAt(moment) {
    const { first, length } = this.pieces;
    const alive = [];
    const end = this.bornFrom[moment + 1];
    for (let i = 0; i < end; i += 1) {
      if (first[i] + length[i] > moment) alive.push(i);
    }
    return alive;
  }

  /** The value at each moment, for changes [{sequence, size}] in the order of events. */
  followMoments({ sequence, size, count }) {
    const values = new Float64Array(this.count);
    let next = 0;
    let value = 0;
    for (let moment = 0; moment < this.count; moment += 1) {
      while (next < count && sequence[next] <= this.moments.sequence[moment]) value = size[next++];
      values[moment] = value;
    }
    return values;
  }

  bornAt(moment) {
    return range(this.bornFrom[moment], this.bornFrom[moment + 1]);
  }

  freedAt(moment) {
    return Array.from(this.freed.subarray(this.freedFrom[moment], this.freedFrom[moment + 1]));
  }

  /** {step, activity, module} at a moment. */
  contextAt(moment) {
    const i = upperBound(this.contexts.first, moment) - 1;
    const { step, activity, module } = this.contexts;
    return { step: step[i], activity: activity[i], module: module[i] };
  }

  /** [{step, first, end, highest}] in moments; step 0 is the time before the first step. */
  steps() {
    const { first, step, count } = this.contexts;
    const steps = [];
    for (let i = 0; i < count; i += 1) {
      const last = steps.at(-1);
      if (last?.step === step[i]) continue;
      if (last) last.end = first[i];
      steps.push({ step: step[i], first: first[i], end: this.count });
    }
    for (const each of steps) each.highest = this.highestIn(each.first, each.end);
    return steps;
  }

  #sortChanges() {
    const { first, length, count } = this.pieces;
    this.bornFrom = new Uint32Array(this.count + 1);
    this.freedFrom = new Uint32Array(this.count + 2);
    for (let i = 0; i < count; i += 1) {
      this.bornFrom[first[i] + 1] += 1;
      this.freedFrom[first[i] + length[i] + 1] += 1;
    }
    for (let m = 0; m < this.count; m += 1) {
      this.bornFrom[m + 1] += this.bornFrom[m];
      this.freedFrom[m + 1] += this.freedFrom[m];
    }
    this.freedFrom[this.count + 1] += this.freedFrom[this.count];
    this.freed = new Uint32Array(count);
    const next = this.freedFrom.slice();
    for (let i = 0; i < count; i += 1) this.freed[next[first[i] + length[i]]++] = i;
  }

  #change(moment, split) {
    const { size, category } = this.pieces;
    for (let i = this.bornFrom[moment]; i < this.bornFrom[moment + 1]; i += 1) {
      split[category[i]] += size[i];
    }
    for (let k = this.freedFrom[moment]; k < this.freedFrom[moment + 1]; k += 1) {
      split[category[this.freed[k]]] -= size[this.freed[k]];
    }
  }

  #sumUp() {
    this.totals = new Float64Array(this.count);
    this.splits = new Float64Array((Math.floor(this.count / CHUNK) + 1) * this.categoryCount);
    const split = new Float64Array(this.categoryCount);
    for (let m = 0; m < this.count; m += 1) {
      if (m % CHUNK === 0) this.splits.set(split, (m / CHUNK) * this.categoryCount);
      this.#change(m, split);
      let total = 0;
      for (const bytes of split) total += bytes;
      this.totals[m] = total;
    }
  }

  #buildPyramid() {
    this.levels = [null]; // the lowest level is the moments themselves
    let below = this.count;
    for (let span = FAN; below >= FAN; span *= FAN) {
      const nodes = new Uint32Array(Math.floor(below / FAN));
      const previous = this.levels.at(-1);
      for (let i = 0; i < nodes.length; i += 1) {
        let best = previous ? previous[i * FAN] : i * FAN;
        for (let k = 1; k < FAN; k += 1) {
          const candidate = previous ? previous[i * FAN + k] : i * FAN + k;
          if (this.totals[candidate] > this.totals[best]) best = candidate;
        }
        nodes[i] = best;
      }
      this.levels.push(nodes);
      below = nodes.length;
    }
  }
}

/** How many of the sorted values are at most `value`. */
export function upperBound(values, value) {
  let low = 0;
  let high = values.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (values[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low;
}

function range(first, end) {
  return Array.from({ length: end - first }, (_, i) => first + i);
}
