// SPDX-License-Identifier: BSD-3-Clause
// User input of the timeline: wheel, drag, click, hover, keys and buttons.
import { GUTTER, stackBox, toPoint } from "./chart.js";
import { find, make, swatch } from "./dom.js";
import { formatBytes, formatShare } from "./format.js";
import { describeChange, describeContext, describeMoment } from "./moment.js";
import { highestOfColumns } from "./stack.js";
import { momentAt, momentsIn, pan, reveal, zoom } from "./view.js";

const DRAG = 4; // pixels of movement that turn a press into a drag

export class ChartInput {
  constructor(canvas, overview, tooltip, state) {
    this.canvas = canvas;
    this.overview = overview;
    this.tooltip = tooltip;
    this.state = state;
    this.press = null;
    canvas.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    canvas.addEventListener("pointerdown", (event) => this.#down(event));
    canvas.addEventListener("pointermove", (event) => this.#move(event));
    canvas.addEventListener("pointerup", (event) => this.#up(event));
    canvas.addEventListener("pointercancel", () => (this.press = null));
    canvas.addEventListener("pointerleave", () => this.state.set({ hovered: null }));
    canvas.addEventListener("dblclick", () => this.showAll());
    canvas.addEventListener("keydown", (event) => this.#key(event));
    overview.addEventListener("pointerdown", (event) => this.#grabOverview(event));
    overview.addEventListener("pointermove", (event) => this.#dragOverview(event));
    state.watch(["hovered", "timeline"], () => this.#showTooltip());
    state.watch(["chosen", "timeline"], () => this.#notifyScreenReader());
  }

  #box() {
    return stackBox(this.canvas.clientWidth, this.canvas.clientHeight);
  }

  #values() {
    return this.state.get("timeline").moments[this.state.get("axis")];
  }

  /** The highest moment in the pixel column under the pointer, which is the one drawn there. */
  #momentOf(event) {
    const box = this.#box();
    const x = event.clientX - this.canvas.getBoundingClientRect().left;
    const column = Math.min(Math.max(Math.floor(x - box.x), 0), Math.floor(box.width) - 1);
    const view = this.state.get("view");
    const width = (view.to - view.from) / Math.floor(box.width);
    const from = view.from + column * width;
    return highestOfColumns(this.state.get("timeline"), this.#values(), { from, to: from + width }, 1)[0];
  }

  /** The last moment at or before the pointer. */
  #nearest(event) {
    const box = this.#box();
    const x = event.clientX - this.canvas.getBoundingClientRect().left;
    return momentAt(this.#values(), toPoint(Math.min(Math.max(x, box.x), box.x + box.width), this.state.get("view"), box));
  }

  zoomBy(factor, around = null) {
    const view = this.state.get("view");
    const chosen = this.#values()[this.state.get("chosen")];
    const isSeen = chosen >= view.from && chosen <= view.to;
    const point = around ?? (isSeen ? chosen : (view.from + view.to) / 2);
    const [whole, smallest] = [this.state.get("whole"), this.state.get("smallest")];
    this.state.set({ view: zoom(view, factor, point, whole, smallest) });
  }

  panBy(share) {
    this.state.set({ view: pan(this.state.get("view"), share, this.state.get("whole")) });
  }

  showAll() {
    this.state.set({ view: { ...this.state.get("whole") } });
  }

  choose(moment) {
    const timeline = this.state.get("timeline");
    const chosen = Math.min(Math.max(moment, 0), timeline.count - 1);
    const view = reveal(this.state.get("view"), this.#values()[chosen], this.state.get("whole"));
    this.state.set({ chosen, view });
  }

  #wheel(event) {
    event.preventDefault();
    const box = this.#box();
    if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      this.panBy((event.deltaX || event.deltaY) / box.width);
      return;
    }
    const x = event.clientX - this.canvas.getBoundingClientRect().left;
    const factor = Math.exp(Math.min(Math.max(event.deltaY, -200), 200) * 0.0025);
    this.zoomBy(factor, toPoint(Math.max(x, GUTTER), this.state.get("view"), box));
  }

  #down(event) {
    if (event.button !== 0) return;
    this.canvas.setPointerCapture(event.pointerId);
    const selects = event.shiftKey || find("selects").checked;
    const anchor = selects ? this.#nearest(event) : null;
    this.press = { x: event.clientX, view: this.state.get("view"), isDrag: false, anchor };
  }

  #move(event) {
    if (this.press) {
      const shift = event.clientX - this.press.x;
      this.press.isDrag ||= Math.abs(shift) > DRAG;
      if (this.press.isDrag && this.press.anchor !== null) {
        const [first, last] = [this.press.anchor, this.#nearest(event)].sort((a, b) => a - b);
        this.state.set({ range: last > first ? { first, last } : null, hovered: null });
        return;
      }
      if (this.press.isDrag) {
        const view = pan(this.press.view, -shift / this.#box().width, this.state.get("whole"));
        this.state.set({ view, hovered: null });
        return;
      }
    }
    this.pointer = { x: event.clientX, y: event.clientY };
    const hovered = this.#momentOf(event);
    if (hovered === this.state.get("hovered")) this.#placeTooltip();
    else this.state.set({ hovered });
  }

  #up(event) {
    if (this.press && !this.press.isDrag) this.state.set({ chosen: this.#momentOf(event) });
    this.press = null;
  }

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const action = this.#actions()[event.key];
    if (!action) return;
    event.preventDefault();
    action(event.shiftKey);
  }

  #actions() {
    const timeline = this.state.get("timeline");
    const chosen = this.state.get("chosen");
    const view = this.state.get("view");
    const [first, end] = momentsIn(this.#values(), view.from, view.to);
    const stride = Math.max(1, Math.round((end - first) / 100));
    const move = (sign) => (isShift) => (isShift ? this.panBy(sign * 0.2) : this.choose(chosen + sign * stride));
    const toStep = (sign) => () => {
      const at = timeline.stepList.findIndex((step) => chosen < step.end);
      const step = timeline.stepList[Math.min(Math.max(at + sign, 0), timeline.stepList.length - 1)];
      this.choose(step.highest);
    };
    return {
      ArrowLeft: move(-1),
      ArrowRight: move(1),
      ",": () => this.choose(chosen - 1),
      ".": () => this.choose(chosen + 1),
      PageUp: toStep(-1),
      PageDown: toStep(1),
      ArrowUp: () => this.zoomBy(0.5),
      ArrowDown: () => this.zoomBy(2),
      "+": () => this.zoomBy(0.5),
      "=": () => this.zoomBy(0.5),
      "-": () => this.zoomBy(2),
      0: () => this.showAll(),
      Home: () => this.choose(0),
      End: () => this.choose(timeline.count - 1),
      p: () => this.choose(timeline.peak),
    };
  }

  #grabOverview(event) {
    this.overview.setPointerCapture(event.pointerId);
    this.#centreOn(event);
  }

  #dragOverview(event) {
    if (event.buttons & 1) this.#centreOn(event);
  }

  #centreOn(event) {
    const whole = this.state.get("whole");
    const view = this.state.get("view");
    const box = { ...this.#box(), width: this.overview.clientWidth - GUTTER - 12 };
    const x = event.clientX - this.overview.getBoundingClientRect().left;
    const shift = toPoint(x, whole, box) - (view.from + view.to) / 2;
    this.state.set({ view: pan(view, shift / (view.to - view.from), whole) });
  }

  #showTooltip() {
    const moment = this.state.get("hovered");
    this.tooltip.hidden = moment === null;
    if (moment === null) return;
    const run = this.state.get("run");
    const timeline = this.state.get("timeline");
    const total = timeline.totals[moment];
    const split = timeline.splitAt(moment);
    const rows = run.ordered
      .filter((category) => split[category.id] > 0)
      .reverse() // the order of the stack, from above
      .map((category) =>
        make(
          "tr",
          {},
          make("td", {}, swatch(category), category.name),
          make("td", { class: "number" }, formatBytes(split[category.id])),
          make("td", { class: "number" }, formatShare(split[category.id], total)),
        ),
      );
    this.tooltip.replaceChildren(
      make("strong", {}, formatBytes(total)),
      make("p", {}, describeContext(run, timeline.contextAt(moment))),
      make("p", { class: "quiet" }, describeChange(run, timeline, moment)),
      make("table", {}, make("tbody", {}, ...rows)),
    );
    this.#placeTooltip();
  }

  #placeTooltip() {
    if (!this.pointer) return;
    // In the other half of the chart, so that it does not cover the moment that it explains; below a
    // chart that is too narrow for that.
    const { offsetWidth: width, offsetHeight: height } = this.tooltip;
    const chart = this.canvas.getBoundingClientRect();
    const [left, right] = [chart.left + GUTTER + 4, chart.right - width - 16];
    const isNarrow = chart.width - GUTTER < 2 * width;
    const x = isNarrow ? 8 : this.pointer.x < chart.left + (GUTTER + chart.width) / 2 ? right : left;
    const below = Math.min(chart.bottom + 6, window.innerHeight - height - 8);
    const y = isNarrow ? below : Math.min(Math.max(chart.top + 22, 8), window.innerHeight - height - 8);
    this.tooltip.style.transform = `translate(${x}px, ${Math.max(8, y)}px)`;
  }

  #notifyScreenReader() {
    const timeline = this.state.get("timeline");
    if (!timeline?.count) return;
    const chosen = this.state.get("chosen");
    this.canvas.setAttribute("aria-valuemin", "0");
    this.canvas.setAttribute("aria-valuemax", String(timeline.count - 1));
    this.canvas.setAttribute("aria-valuenow", String(chosen));
    const text = describeMoment(this.state.get("run"), timeline, chosen);
    this.canvas.setAttribute("aria-valuetext", text);
    find("chosen-moment").textContent = text;
  }
}
