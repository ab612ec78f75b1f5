// SPDX-License-Identifier: BSD-3-Clause
// The modelled time of a simulated step, and where it goes.
import { find, make } from "./dom.js";
import { formatShare } from "./format.js";

export function followStepTime(state) {
  state.watch(["run"], () => show(state.get("run").step_time));
}

function show(time) {
  find("step-time").hidden = !time;
  if (!time) return;
  find("step-time-answer").textContent = time.answer;
  find("step-time-basis").textContent = time.basis;
  find("step-time-parts").replaceChildren(
    ...time.parts.map(({ name, text, ms }) =>
      make(
        "tr",
        {},
        make("th", { scope: "row" }, name),
        make("td", { class: "number", "data-ms": ms }, text),
        make("td", { class: "number quiet" }, formatShare(ms, time.ms)),
      ),
    ),
  );
}
