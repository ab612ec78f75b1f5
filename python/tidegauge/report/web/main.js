// SPDX-License-Identifier: BSD-3-Clause
import { Alive } from "./alive.js";
import { Chart } from "./chart.js";
import { ChartInput } from "./chart_input.js";
import { readPage } from "./columns.js";
import { DeviceMemory } from "./device_memory.js";
import { find, make } from "./dom.js";
import { Flame } from "./flame.js";
import { Legend } from "./legend.js";
import { formatBytes, formatTime } from "./format.js";
import { Lanes } from "./lanes.js";
import { describeContext } from "./moment.js";
import { Pin } from "./pin.js";
import { Range } from "./range.js";
import { openPage } from "./run.js";
import { showComparison, showRanks, showRuns } from "./side_by_side.js";
import { State } from "./state.js";
import { followStepTime } from "./step_time.js";
import { showSteps } from "./steps.js";
import { showSweep } from "./sweep.js";
import { followTheme } from "./theme.js";
import { firstView, momentsIn, smallestWidth, wholeView } from "./view.js";
import { markCode } from "./words.js";

async function start() {
  const page = openPage(await readPage(find("data").textContent));
  find("data").remove(); // free the text, it is no longer needed
  const state = new State({
    run: page.runs[0],
    axis: "time",
    hovered: null,
    pinned: null,
    isolated: null,
    range: null,
  });
  followTheme(state);
  followStepTime(state);

  const showDevice = (run, number) => {
    const timeline = run.timeline(number);
    // The clock of a simulation says nothing about a real run.
    const axis = run.is_simulated ? "sequence" : state.get("axis");
    const values = timeline?.moments[axis] ?? [];
    const limits = limitsOf(values);
    const chosen = timeline?.peak ?? 0;
    const device = run.devices[number] ?? null;
    // Only a real run waits before its first step.
    const isFolded = timeline && !run.is_simulated;
    const view = isFolded ? firstView(values, timeline.stepList, limits.whole, chosen) : limits.whole;
    const leftOut = view.from - limits.whole.from;
    const none = { hovered: null, pinned: null, isolated: null, range: null };
    state.set({ run, device, timeline, axis, chosen, ...limits, view, ...none });
    find("left-out").hidden = !leftOut;
    find("left-out").textContent = `${formatTime(leftOut, 1)} before the first step are left out.`;
    find("axis").value = axis;
    find("axis").closest("label").hidden = run.is_simulated;
    find("device").value = String(number);
    showHead(page, run, number, timeline);
  };
  const showRun = (run) => {
    find("device").replaceChildren(
      ...run.devices.map((device, i) => make("option", { value: i }, device.device)),
    );
    find("device-choice").hidden = run.devices.length < 2;
    find("run").value = String(page.runs.indexOf(run));
    showDevice(run, 0);
  };
  state.watch(["view"], () => {
    if (state.get("view")?.from <= state.get("whole")?.from) find("left-out").hidden = true;
  });
  find("run").replaceChildren(...page.runs.map((run, i) => make("option", { value: i }, run.label)));
  find("run-choice").hidden = page.runs.length < 2;
  showRun(page.runs[page.shown ?? 0]);

  find("run").addEventListener("change", () => showRun(page.runs[Number(find("run").value)]));
  find("device").addEventListener("change", () => {
    showDevice(state.get("run"), Number(find("device").value));
  });
  find("axis").addEventListener("change", () => changeAxis(state, find("axis").value));

  const input = new ChartInput(find("chart"), find("overview"), find("tooltip"), state);
  new Chart(find("chart"), find("overview"), state);
  find("zoom-in").addEventListener("click", () => input.zoomBy(0.5));
  find("zoom-out").addEventListener("click", () => input.zoomBy(2));
  find("show-all").addEventListener("click", () => input.showAll());
  find("to-peak").addEventListener("click", () => input.choose(state.get("timeline").peak));
  new Legend(find("legend"), state);
  new Range(state);
  new Lanes(find("lanes"), state);
  new Flame(find("flame"), state);
  new Alive(state);
  new Pin(state);
  showSteps(state, (moment) => {
    input.choose(moment);
    find("chart").focus();
  });
  new DeviceMemory(state);
  showSweep(page);
  showRuns(page, state, showRun);
  showComparison(page);
  showRanks(page, (rank) => showRun(page.runs.find((run) => run.rank === rank)));
  document.documentElement.dataset.ready = "yes";
}

/** Changes the axis and keeps the same moments in view. */
function changeAxis(state, axis) {
  const timeline = state.get("timeline");
  if (!timeline?.count) return;
  const values = timeline.moments[axis];
  const limits = limitsOf(values);
  const { from, to } = state.get("view");
  const [first, end] = momentsIn(timeline.moments[state.get("axis")], from, to);
  const view = { from: values[first], to: end < timeline.count ? values[end] : limits.whole.to };
  state.set({ axis, ...limits, view: view.to > view.from ? view : limits.whole });
}

/** The widest and the narrowest view of a timeline. */
function limitsOf(values) {
  return { whole: wholeView(values), smallest: smallestWidth(values) };
}

function showHead(page, run, number, timeline) {
  find("headline").textContent = run.headline;
  find("command").textContent = run.command;
  find("command").title = run.full_command;
  find("warnings").replaceChildren(...run.warnings.map((text) => make("li", { class: "warning" }, ...markCode(text))));
  find("failures").hidden = run.failures.length === 0;
  find("failure-texts").replaceChildren(...run.failures.map((text) => make("pre", {}, text)));
  find("tracked").hidden = !timeline?.count;
  const device = run.devices[number];
  const peak = find("peak");
  if (!timeline?.count) {
    peak.textContent = "Nothing was tracked: the run made no tensors while it was recorded.";
    find("explained").textContent = "";
    return;
  }
  peak.dataset.bytes = String(device.peakBytes);
  const moment = `peak on ${device.device}, ${describeContext(run, timeline.contextAt(timeline.peak))}`;
  const answer = page.headline || run.memory?.headline;
  const label = page.headline && page.runs.length > 1 ? `${run.label}: ` : "";
  const own = device.explained ? `: ${device.explained}.` : ".";
  if (answer) {
    peak.replaceChildren(make("span", { class: "answer" }, answer));
    find("explained").textContent = `${label}${formatBytes(device.peakBytes)} ${moment}${own}`;
  } else {
    peak.replaceChildren(
      make("span", { class: "figure" }, formatBytes(device.peakBytes)),
      make("span", {}, ` ${moment}`),
    );
    find("explained").textContent = device.explained ? `${device.explained}.` : "";
  }
}

start().catch((error) => {
  find("peak").textContent = `Cannot show this report: ${error.message}`;
  throw error;
});
