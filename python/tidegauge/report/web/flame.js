// SPDX-License-Identifier: BSD-3-Clause
// The module tree at the chosen moment as a flame graph: the width of a box shows its bytes.
import { isLight } from "./categories.js";
import { find, make } from "./dom.js";
import { formatBytes, formatShare } from "./format.js";
import { describePieces, layOutFlame, moduleTree } from "./groups.js";

const ROW = 24;
const LEAST = 0.002; // fraction of the width; narrower boxes are not visible
const LEAST_LABEL = 30; // pixels; a narrower box has no room for a label
const DEEPEST = 60;

export class Flame {
  constructor(element, state) {
    this.element = element;
    this.state = state;
    this.root = null; // the module that fills the width
    element.addEventListener("keydown", (event) => this.#key(event));
    find("flame-up").addEventListener("click", () => this.#zoomTo(""));
    state.watch(["timeline", "chosen"], () => this.#build());
    let width = element.clientWidth;
    new ResizeObserver(() => {
      if (element.clientWidth === width) return; // only the height changed, by ourselves
      width = element.clientWidth;
      if (this.root) this.#zoomTo(this.root.path);
    }).observe(element);
  }

  #build() {
    const timeline = this.state.get("timeline");
    if (!timeline?.count) return;
    const alive = timeline.aliveAt(this.state.get("chosen"));
    this.tree = moduleTree(describePieces(this.state.get("run"), timeline, alive));
    this.#zoomTo(this.root?.path ?? "");
  }

  #zoomTo(path) {
    this.root = findNode(this.tree, path) ?? this.tree;
    find("flame-up").hidden = this.root === this.tree;
    find("flame-path").textContent = this.root.path || "all modules";
    const boxes = layOutFlame(this.root, LEAST).filter((box) => box.depth < DEEPEST);
    const depth = boxes.reduce((most, box) => Math.max(most, box.depth), 0);
    this.element.style.height = `${(depth + 1) * ROW}px`;
    this.element.replaceChildren(...boxes.map((box, i) => this.#box(box, i === 0)));
  }

  #box({ depth, left, width, node, category }, isFirst) {
    const share = formatShare(node.size, this.tree.size);
    const name = category ? category.name : node.name;
    const place = category ? ` of ${node.path || "all modules"} itself` : "";
    const text = `${category ? name : node.path || "all modules"}${place}: ${formatBytes(node.size)}, ${share}`;
    const box = make(
      "div",
      {
        class: category ? "box own" : "box",
        role: "treeitem",
        tabindex: isFirst ? 0 : -1,
        "aria-level": depth + 1,
        "aria-label": text,
        title: text,
        "data-path": category ? null : node.path,
      },
      width * this.element.clientWidth < LEAST_LABEL
        ? ""
        : make("span", {}, depth === 0 ? `${node.path || "all modules"} ${formatBytes(node.size)}` : name),
    );
    box.style.left = `${left * 100}%`;
    box.style.width = `${width * 100}%`;
    box.style.top = `${depth * ROW}px`;
    if (category) {
      box.style.backgroundColor = category.colour;
      box.style.color = isLight(category.colour) ? "#000000" : "#ffffff";
    }
    box.addEventListener("click", () => {
      this.#pin(node, category);
      if (!category) this.#zoomTo(node.path);
    });
    return box;
  }

  /** Pins the storages of a module and of all below it, or those of one category of the module itself. */
  #pin({ path }, category) {
    const isBelow = (row) => path === "" || row.place === path || row.place.startsWith(`${path}.`);
    const isOwn = (row) => row.place === path && row.category === category;
    const label = category ? `${category.name} of ${path} itself` : path || "all modules";
    this.state.set({ pinned: { label, holds: category ? isOwn : isBelow } });
  }

  #key(event) {
    const boxes = [...this.element.children];
    const at = boxes.indexOf(document.activeElement);
    if (at < 0) return;
    const move = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (move) this.#focus(boxes[Math.min(Math.max(at + move, 0), boxes.length - 1)]);
    else if (event.key === "Home") this.#focus(boxes[0]);
    else if (event.key === "End") this.#focus(boxes.at(-1));
    else if (event.key === "Enter" || event.key === " ") this.#zoomAndFocus(boxes[at].dataset.path);
    else if (event.key === "Escape" || event.key === "Backspace") this.#zoomAndFocus("");
    else return;
    event.preventDefault();
  }

  #zoomAndFocus(path) {
    if (path === undefined) return;
    this.#zoomTo(path);
    this.#focus(this.element.firstElementChild);
  }

  #focus(box) {
    for (const other of this.element.children) other.tabIndex = other === box ? 0 : -1;
    box.focus();
  }
}

function findNode(tree, path) {
  let node = tree;
  while (node && node.path !== path) {
    node = node.children.find((child) => path === child.path || path.startsWith(`${child.path}.`));
  }
  return node;
}
