# SPDX-License-Identifier: BSD-3-Clause
"""Renders summaries as text, as wide as the terminal (`text_width`).

A report is a list of sections. Each section is a function from a summary to lines; a section
without lines is left out. To add a section, add a function and call it in `render_report`.
"""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tidegauge._util.formatting import (
    make_printable,
    render_brief_duration,
    render_bytes,
    render_duration,
    render_share,
    shorten,
    squeeze,
    text_width,
)
from tidegauge._util.ordering import natural_order
from tidegauge.report.growth import Growth, describe_growth
from tidegauge.report.names import NO_MODULE, name_stranger, render_op, shorten_command
from tidegauge.report.summary import (
    SAVED,
    SIMULATED,
    ModuleBytes,
    Peak,
    StepPeak,
    Summary,
    TensorGroup,
    describe_moment,
)

if TYPE_CHECKING:
    from tidegauge.allocator import DeviceMemory, Layer, Verdict

_SHOWN_STEPS = 5  # at either end
_SHOWN_STRANGERS = 3
_FEWEST_STEPS = 4  # in which growth can be seen (src/analyze/growth.h)
HOW_TO_GET_LINES = (
    "To see which lines of the program allocate this memory, record it with `tidegauge run` "
    'without --stacks, or with `MemTracker(record=..., stacks="python")`.'
)
_UNIT_COLUMNS = ("sharded", "whole", "gathered", "reduced")  # as the table of categories has them


def wrap(text: str, indent: str = "", less: int = 0) -> list[str]:
    """Lines as wide as the terminal, `less` some columns."""
    width = text_width() - less
    return textwrap.wrap(text, width, subsequent_indent=indent, break_on_hyphens=False)


def join_lines(lines: Iterable[str]) -> str:
    narrow = squeeze([line.rstrip() for line in lines], text_width())
    return "\n".join(map(make_printable, narrow))


def join_sections(sections: Iterable[Sequence[str]]) -> str:
    texts = (join_lines(lines) for lines in sections if lines)
    return "\n\n".join(texts)


def render_report(
    summary: Summary, top: int, memory: DeviceMemory | None = None, failures: Sequence[str] = ()
) -> str:
    """The output of `tidegauge report`, with `top` rows per list (0 for all).

    `failures`: a text for each failed allocation.
    """
    sections: list[list[str]] = [_render_head(summary), render_growth(summary.growth)]
    for peak in summary.peaks:
        sections.append(render_peak(peak))
        sections.append(render_modules(peak, top))
        sections.append(_render_tensors(peak, top))
        sections.append(_render_saved(peak, top))
        sections.append(render_lines(peak, top))
        sections.append(render_units(peak, top, with_times=SIMULATED not in summary.facts))
    sections.append(_render_steps(summary.steps, summary.step_count))
    if not summary.peaks:
        sections.append(["The run created no tensors while it was recorded."])
    elif memory is not None:
        sections.append(render_layers(memory))
    sections += [text.splitlines() for text in failures]
    if summary.peaks and not any(peak.lines for peak in summary.peaks):
        sections.append(wrap(HOW_TO_GET_LINES))
    return join_sections(sections)


def render_layers(memory: DeviceMemory) -> list[str]:
    """The layers from tensors to the total memory of a CUDA device."""
    title = f"Estimated CUDA memory for the tensors on {memory.traced_device}"
    return [title, *render_layer_rows(memory.layers)]


def render_layer_rows(layers: Iterable[Layer]) -> list[str]:
    lines = []
    for layer in layers:
        mark = "= " if layer.basis is None else "  "
        size = render_bytes(layer.size_bytes)
        note = f"{layer.basis or '':9}{_render_band(layer.low_bytes, layer.high_bytes)}"
        lines.append(f"  {mark}{layer.name:22}{size:>12}  {note}")
    return lines


def _render_band(low_bytes: int, high_bytes: int) -> str:
    """Empty if the ends are printed alike."""
    low, high = render_bytes(low_bytes), render_bytes(high_bytes)
    return "" if low == high else f" ({low} to {high})"


def describe_verdict(verdict: Verdict) -> str:
    """`Fits: 61.0 GiB of 79.1 GiB, 18.1 GiB to spare`, for a verdict about a device."""
    assert verdict.device is not None
    assert verdict.name is not None
    memory = render_bytes(verdict.device.memory_bytes)
    needs = f"{render_bytes(verdict.needed_bytes)} of {memory}"
    return f"{verdict.name.capitalize()}: {needs}, {_describe_margin(verdict)}"


def render_verdict(verdict: Verdict) -> list[str]:
    """Whether the run fits, the band, and the smallest device that certainly fits it."""
    band = _render_band(verdict.low_bytes, verdict.high_bytes)
    needs = f"{render_bytes(verdict.needed_bytes)}{band}"
    if verdict.device is None or verdict.name is None:
        lines = wrap(f"Needs {needs} of device memory.")
    else:
        has = f"{verdict.device.name} has {render_bytes(verdict.device.memory_bytes)}"
        margin = _describe_margin(verdict)
        lines = wrap(f"{verdict.name.capitalize()}: needs {needs}; {has} ({margin}).")
        lines += wrap(_explain(verdict))
    if verdict.smallest is None:
        return [*lines, "No device in the catalogue is large enough."]
    if verdict.smallest == verdict.device:
        return lines
    smallest = f"{verdict.smallest.name} ({verdict.smallest.key})"
    return lines + wrap(f"Smallest device in the catalogue that fits: {smallest}.")


def _describe_margin(verdict: Verdict) -> str:
    assert verdict.margin_bytes is not None
    margin = render_bytes(abs(verdict.margin_bytes))
    return f"{margin} {'to spare' if verdict.margin_bytes >= 0 else 'short'}"


def _explain(verdict: Verdict) -> str:
    """Explains the uncertain verdicts."""
    if verdict.name == "fits after retries":
        return (
            "The upper end exceeds the device, but no request fails: the allocator frees cached "
            "segments and retries, which costs time."
        )
    if verdict.name == "too close to call":
        return "The run fits at the lower end, but at the upper end some requests fail."
    if verdict.failed_requests:
        return f"{verdict.failed_requests:,} requests fail."
    return ""


def name_device(device: str) -> str:
    """Marks meta: its tensors have sizes but use no memory."""
    return "meta (no real memory)" if device == "meta" else device


def render_peak(peak: Peak) -> list[str]:
    title = f"Peak on {name_device(peak.device)}: {render_bytes(peak.total_bytes)}"
    lines = wrap(f"{title}, {describe_moment(peak)}")
    return lines + render_categories(peak.categories)


def render_categories(categories: dict[str, int]) -> list[str]:
    total = sum(categories.values())
    return [
        f"  {name:20}{render_bytes(size):>12}{render_share(size, total):>9}"
        for name, size in categories.items()
    ]


def describe_health(summary: Summary) -> list[str]:
    """One sentence for each problem of the recording, and for what it does not have on purpose."""
    health = summary.health
    sentences = []
    if not health.is_complete:
        sentences.append(
            "The run was killed or is still running: this trace covers its first "
            f"{render_duration(summary.duration_ns)}."
        )
    if ended_by := summary.facts.get("ended_by"):
        sentences.append(f"The run was ended by {ended_by}.")
    if health.lost_events:
        reason = f" ({health.gaps[0].reason})" if health.gaps[0].reason else ""
        sentences.append(
            f"{health.lost_events:,} events are missing{reason}; the true peak may be higher."
        )
    if health.dropped_events:
        keep = summary.facts.get("keep", "")
        sentences.append(
            f"{health.dropped_events:,} events of {health.dropped_steps:,} steps were dropped "
            f"(--keep {keep}); the peaks are those of the whole run."
        )
    if health.anomaly_count:
        sentences.append(
            f"{health.anomaly_count:,} events contradict others and were ignored (first: "
            f"{health.first_anomaly})"
        )
    if health.hook_failure_count:
        sentences.append(describe_failures(health.hook_failure_count, health.first_hook_failure))
    return sentences


def describe_failures(count: int, first: str) -> str:
    """For failures of our own hooks."""
    times = "once" if count == 1 else f"{count:,} times"
    return (
        f"tidegauge failed {times} to observe the run, so memory may be missing or have another "
        f"category (first: {first})"
    )


def describe_run(summary: Summary, name: str | None = None) -> str:
    """Uses `name`, or by default the name of the file."""
    steps = f"{summary.step_count:,} step{'' if summary.step_count == 1 else 's'}"
    rank = f", rank {summary.rank} of {summary.world_size}" if summary.world_size > 1 else ""
    # The clock of a simulation says nothing about a real run.
    is_simulated = SIMULATED in summary.facts
    time = ", simulated" if is_simulated else f" in {render_duration(summary.duration_ns)}"
    return f"{name or summary.path}{rank}: {steps}{time}"


def _render_head(summary: Summary) -> list[str]:
    lines = [*wrap(describe_run(summary))]
    if command := summary.facts.get("command"):
        short = textwrap.shorten(shorten_command(command), 3 * text_width(), placeholder=" …")
        lines += wrap(short, "  ")
    for sentence in describe_health(summary):
        lines += wrap(f"! {sentence}", "  ")
    return lines


def render_modules(peak: Peak, top: int) -> list[str]:
    """A tree. A module never has more than its parent, so the largest modules are connected."""
    shown = peak.modules[: top or None]
    if not shown:
        return []
    longest = max(len(_label(module)) for module in shown)
    room = min(text_width() - 35, max(45, longest + 1))
    title = f"Modules at the peak on {peak.device}"
    lines = [f"{title:{room + 2}}{'total':>11}{'own':>11}{'saved':>11}"]
    for module in sorted(shown, key=_tree_order):
        lines.append(
            f"  {shorten(_label(module), room - 1):{room}}{render_bytes(module.tree_bytes):>11}"
            f"{render_bytes(module.own_bytes):>11}{render_bytes(module.saved_bytes):>11}"
        )
        if module.name == NO_MODULE:
            lines += _render_strangers(peak, room)
    return lines + _render_rest(len(peak.modules) - len(shown), "module")


def _render_strangers(peak: Peak, room: int) -> list[str]:
    """What is in "(no module)", the most bytes first, without small change."""
    sizes: dict[str, list[int]] = {}
    for group in peak.tensors:
        if group.module == NO_MODULE:
            both = sizes.setdefault(name_stranger(group.op, group.category), [0, 0])
            both[0] += group.size_bytes
            both[1] += group.size_bytes if group.category == SAVED else 0
    largest = sorted(sizes.items(), key=lambda item: -item[1][0])[:_SHOWN_STRANGERS]
    return [
        f"    {shorten(name, room - 3):{room - 2}}{render_bytes(size):>11}"
        f"{render_bytes(size):>11}{render_bytes(saved):>11}"
        for name, (size, saved) in largest
        if 100 * size >= peak.total_bytes
    ]


def _label(module: ModuleBytes) -> str:
    """The last part of its name, indented by its depth."""
    depth = module.name.count(".")
    return "  " * min(depth, 12) + (module.name.rpartition(".")[2] if depth else module.name)


def _tree_order(module: ModuleBytes) -> list[list[tuple[int, str]]]:
    return [natural_order(part) for part in module.name.split(".")]


def _render_tensors(peak: Peak, top: int) -> list[str]:
    return _render_groups(f"Tensors at the peak on {peak.device}", peak.tensors, top)


def _render_saved(peak: Peak, top: int) -> list[str]:
    saved = [group for group in peak.tensors if group.category == SAVED]
    title = f"Saved for backward at the peak: {render_bytes(peak.saved_bytes)}"
    return _render_groups(title, saved, top, with_category=False) if saved else []


def render_units(peak: Peak, top: int, *, with_times: bool = True) -> list[str]:
    """`with_times`: show how long units were unsharded. A simulated run has no such times."""
    shown = peak.units[: top or None]
    if not shown:
        return []
    room = max(18, min(text_width() - 62, max(len(unit.name) for unit in shown)))
    titles = "".join(f"{title:>9}" for title in _UNIT_COLUMNS)
    lines = [
        f"FSDP units at the peak on {peak.device}",
        f"  {'':{room}}{'share':>6}{titles}{'gathers':>9}{'longest' if with_times else '':>9}",
    ]
    from tidegauge import _core

    column_of = {row["name"]: row["unit_column"] for row in _core.category_table()}
    for unit in shown:
        sizes = (
            sum(size for name, size in unit.categories.items() if column_of.get(name) == column)
            for column in _UNIT_COLUMNS
        )
        lines.append(
            f"  {shorten(unit.name, room):{room}}{unit.peak_share:>6.1%}"
            + "".join(f"{render_bytes(size):>9}" for size in sizes)
            + f"{unit.gather_count:>9}"
            + (f"{render_brief_duration(unit.longest_whole_ns):>9}" if with_times else "")
        )
    return lines + _render_rest(len(peak.units) - len(shown), "unit")


def _render_groups(
    title: str, groups: Sequence[TensorGroup], top: int, *, with_category: bool = True
) -> list[str]:
    groups = _merge_stacks(groups)
    shown = groups[: top or None]
    if not shown:
        return []
    lines = [title]
    room = 22 + min(text_width() - 80, 0) // 2
    for group in shown:
        tensor = shorten(f"{group.dtype} {group.shape}".strip() or "unknown", room)
        category = f"{group.category:17}" if with_category else ""
        row = (
            f"{render_bytes(group.size_bytes):>10}{group.count:>6} x {category}{tensor:{room + 1}}"
        )
        origin = "" if group.module == NO_MODULE else f"{group.module} "
        lines.append(row + shorten(origin + render_op(group.op), text_width() - len(row)))
    return lines + _render_rest(len(groups) - len(shown), "group")


def _merge_stacks(groups: Sequence[TensorGroup]) -> list[TensorGroup]:
    """Groups that differ only by the line that allocated them become one."""
    merged: dict[tuple[str, ...], TensorGroup] = {}
    for group in groups:
        key = (group.category, group.module, group.op, group.dtype, group.shape)
        if known := merged.get(key):
            group = dataclasses.replace(
                group,
                count=known.count + group.count,
                size_bytes=known.size_bytes + group.size_bytes,
            )
        merged[key] = group
    return sorted(merged.values(), key=lambda group: -group.size_bytes)


def render_lines(peak: Peak, top: int) -> list[str]:
    shown = peak.lines[: top or None]
    if not shown:
        return []
    lines = [f"Lines at the peak on {peak.device}"]
    for line in shown:
        row = f"{render_bytes(line.size_bytes):>10}{line.count:>6} x "
        lines.append(row + shorten(line.line, text_width() - len(row)))
    return lines + _render_rest(len(peak.lines) - len(shown), "line")


def render_growth(growth: Sequence[Growth]) -> list[str]:
    text = describe_growth(growth)
    return wrap(f"! {text}", "  ") if text else []


def render_leaks(summary: Summary, top: int) -> str:
    """The output of `tidegauge report --leaks`: all growth, with stacks."""
    sections: list[list[str]] = [wrap(describe_run(summary))]
    for each in summary.growth[: top or None]:
        lines = wrap(str(each))
        sections.append(lines + [f"    {frame}" for frame in each.stack])
    if not summary.growth:
        sections.append(wrap(_describe_no_growth(summary.step_count)))
    elif len(summary.growth) > (top or len(summary.growth)):
        sections.append(_render_rest(len(summary.growth) - top, "group"))
    if summary.growth and not any(each.line for each in summary.growth):
        sections.append(wrap(HOW_TO_GET_LINES))
    return join_sections(sections)


def _describe_no_growth(step_count: int) -> str:
    if step_count < _FEWEST_STEPS:
        return (
            f"The run has {step_count:,} step{'' if step_count == 1 else 's'}; growth can be seen "
            f"from {_FEWEST_STEPS} steps on."
        )
    return "Nothing grows: no kind of tensor is kept in more and more copies from step to step."


def _render_rest(count: int, what: str) -> list[str]:
    return [f"  and {count:,} more {what}{'' if count == 1 else 's'} (--top)"] if count > 0 else []


def _render_steps(steps: Sequence[StepPeak], step_count: int) -> list[str]:
    if not steps:
        return []
    highest = max(steps, key=lambda step: step.total_bytes)
    shown = [*steps]
    if len(steps) > 2 * _SHOWN_STEPS + 1:
        last = len(steps) - _SHOWN_STEPS
        shown = [
            step for i, step in enumerate(steps) if i < _SHOWN_STEPS or i >= last or step is highest
        ]
    lines = [f"Peaks of {step_count:,} step{'' if step_count == 1 else 's'}"]
    before = shown[0].step - 1
    for step in shown:
        if step.step > before + 1:
            lines.append(f"{'...':>8}")
        before = step.step
        largest = next(iter(step.categories.items()), ("", 0))
        mark = "  highest" if step is highest and len(steps) > 1 else ""
        lines.append(
            f"{step.step:>8}  {step.device:8}{render_bytes(step.total_bytes):>11}"
            f"   largest: {largest[0]} {render_bytes(largest[1])}{mark}"
        )
    return lines
