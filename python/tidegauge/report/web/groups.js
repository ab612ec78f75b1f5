// SPDX-License-Identifier: BSD-3-Clause
// Groups the live storages of a moment: as rows of a table, and as a tree of modules.
import { formatOp } from "./format.js";

export const NO_MODULE = "(no module)";

export const NO_LINE = "(no line)";

const KEYS = {
  tensor: (row) => JSON.stringify([row.category.name, row.module, row.op, row.tensor, row.name, row.line]),
  module: (row) => row.module,
  category: (row) => row.category.name,
  line: (row) => row.line,
};
const SAID = {
  tensor: ["category", "module", "op", "tensor", "name", "line"],
  module: ["module"],
  category: ["category"],
  line: ["line"],
};

/**
 * One row per piece: {size, category, module, place, op, tensor, name, line, stack, born}. `place` is
 * the module, or what a storage without a module is for: `(no module).the loss`.
 */
export function describePieces(run, timeline, numbers) {
  const { size, category, module, op, tensor, stack, born, name } = timeline.pieces;
  return numbers.map((i) => ({
    size: size[i],
    count: 1,
    category: run.categories[category[i]],
    module: moduleName(run, module[i]),
    place: module[i] === 0 ? strangerName(run, op[i], category[i]) : moduleName(run, module[i]),
    op: formatOp(run.ops[op[i]] ?? ""),
    tensor: run.tensors[tensor[i]] ?? "",
    name: name[i] ? run.names[name[i] - 1] : "",
    line: run.lines?.[stack[i]] || NO_LINE,
    stack: stack[i],
    born: born[i],
  }));
}

function strangerName(run, op, category) {
  return `${NO_MODULE}.${run.strangers[op] || run.categories[category].name}`;
}

export function moduleName(run, id) {
  return id === 0 ? NO_MODULE : run.modules[id] || "(never called)";
}

/** True for the rows that are in the same group. */
export function isAlike(group, by) {
  const key = KEYS[by](group);
  return (row) => KEYS[by](row) === key;
}

/** Merges equal rows, largest group first; `by` is tensor, module, category or line. */
export function groupRows(rows, by) {
  const groups = new Map();
  for (const row of rows) {
    const key = KEYS[by](row);
    const group = groups.get(key);
    if (group) {
      group.size += row.size;
      group.count += row.count;
    } else {
      const said = Object.fromEntries(SAID[by].map((field) => [field, row[field]]));
      groups.set(key, { ...said, size: row.size, count: row.count });
    }
  }
  return [...groups.values()].sort((a, b) => b.size - a.size);
}

/** Rows that contain all words of the search, in any case. */
export function searchRows(rows, text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return rows;
  return rows.filter((row) => {
    const said = [row.category?.name, row.module, row.op, row.tensor, row.name, row.line]
      .filter(Boolean)
      .join(" ")
      .toLowerCase();
    return words.every((word) => said.includes(word));
  });
}

export function sumSizes(rows) {
  return rows.reduce((sum, row) => sum + row.size, 0);
}

/**
 * The tree of modules with their bytes: {name, path, size, children, own}; `own` is by category.
 * A module's size is exactly the sum of its children and its own bytes. Children: largest first.
 */
export function moduleTree(rows) {
  const root = newNode("all", "");
  for (const row of rows) {
    root.size += row.size;
    let node = root;
    for (const part of row.place.split(".")) {
      let child = node.children.get(part);
      if (!child) {
        child = newNode(part, node.path ? `${node.path}.${part}` : part);
        node.children.set(part, child);
      }
      child.size += row.size;
      node = child;
    }
    node.own.set(row.category, (node.own.get(row.category) ?? 0) + row.size);
  }
  return sortTree(root);
}

function newNode(name, path) {
  return { name, path, size: 0, children: new Map(), own: new Map() };
}

function sortTree(root) {
  const waiting = [root]; // no recursion: names may be nested deeper than the call stack
  while (waiting.length) {
    const node = waiting.pop();
    node.children = [...node.children.values()].sort((a, b) => b.size - a.size);
    node.own = [...node.own].sort(([a], [b]) => a.place - b.place);
    waiting.push(...node.children);
  }
  return root;
}

/**
 * Boxes of a flame graph: {depth, left, width (fractions of the root), node, category}. Omits boxes
 * narrower than `least` and everything below them. A module's own bytes are below it, by category.
 */
export function layOutFlame(root, least) {
  const boxes = [];
  const waiting = [{ node: root, depth: 0, left: 0 }];
  while (waiting.length) {
    const { node, depth, left } = waiting.pop();
    const width = root.size ? node.size / root.size : 0;
    if (width < least || width === 0) continue;
    boxes.push({ depth, left, width, node, category: null });
    let next = left;
    const below = [];
    for (const child of node.children) {
      below.push({ node: child, depth: depth + 1, left: next });
      next += child.size / root.size;
    }
    waiting.push(...below.reverse());
    for (const [category, size] of node.own) {
      const share = size / root.size;
      if (share >= least) {
        boxes.push({ depth: depth + 1, left: next, width: share, node: { ...node, size }, category });
      }
      next += share;
    }
  }
  return boxes;
}
