// SPDX-License-Identifier: BSD-3-Clause
// The categories beside the timeline. A click shows one alone; a second click shows all again.
import { make, swatch } from "./dom.js";
import { formatBytes } from "./format.js";

export class Legend {
  constructor(element, state) {
    this.element = element;
    this.state = state;
    state.watch(["timeline"], () => this.#fill());
    state.watch(["isolated", "timeline"], () => this.#mark());
    state.watch(["chosen", "timeline"], () => this.#showBytes());
  }

  #fill() {
    const timeline = this.state.get("timeline");
    const present = new Set(timeline?.pieces.category ?? []);
    const shown = this.state.get("run").ordered.filter((category) => present.has(category.id));
    this.buttons = new Map(shown.map((category) => [category.id, this.#button(category)]));
    this.element.replaceChildren(...[...this.buttons.values()].map((button) => make("li", {}, button)));
  }

  #button(category) {
    const toggle = () => {
      this.state.set({ isolated: this.state.get("isolated") === category.id ? null : category.id });
    };
    const bytes = make("span", { class: "quiet number" });
    return make("button", { type: "button", onclick: toggle }, swatch(category), category.name, " ", bytes);
  }

  #mark() {
    const isolated = this.state.get("isolated");
    for (const [id, button] of this.buttons) {
      button.setAttribute("aria-pressed", String(id === isolated));
      button.classList.toggle("faded", isolated !== null && id !== isolated);
    }
  }

  #showBytes() {
    const timeline = this.state.get("timeline");
    if (!timeline?.count) return;
    const split = timeline.splitAt(this.state.get("chosen"));
    for (const [id, button] of this.buttons) button.lastChild.textContent = formatBytes(split[id]);
  }
}
