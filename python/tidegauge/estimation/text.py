# SPDX-License-Identifier: BSD-3-Clause
"""Estimates as text for people, at most 80 columns wide."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from tidegauge._util.formatting import render_bytes, render_duration, shorten, text_width
from tidegauge.estimation.advice import Advice, find_too_large
from tidegauge.estimation.estimator import Estimate
from tidegauge.estimation.sweep import SweepPoint, to_points
from tidegauge.estimation.time_text import render_step_time, render_top_times
from tidegauge.report.text import (
    join_sections,
    render_layer_rows,
    render_modules,
    render_peak,
    render_units,
    render_verdict,
    wrap,
)

_SHOWN_SETTINGS = 10  # a config has dozens, most of them irrelevant here


def render_estimate(
    estimate: Estimate,
    top: int,
    advice: Sequence[Advice] | None = None,
    *,
    plan_command: str = "",
    has_top_times: bool = False,
    moments: Sequence[str] = (),
) -> str:
    """The output of `tidegauge estimate`; `advice` is None if it was not requested.
    `plan_command`: chooses the blocks to checkpoint. `has_top_times`: also lists the modules and
    ops with the most time. `moments`: the names of moments to list.
    """
    time = estimate.time
    return join_sections(
        [
            _render_head(estimate),
            render_verdict(estimate.judged),
            [] if advice is None else render_advice(advice, find_too_large(estimate)),
            _render_plan_command(plan_command),
            _render_time(estimate),
            ["Device memory", *render_layer_rows(estimate.layers)],
            _render_moments(estimate, moments) if moments else _render_steps(estimate),
            render_peak(estimate.peak),
            render_modules(estimate.peak, top),
            render_units(estimate.peak, top, with_times=False),
            *(render_top_times(time, top) if time and has_top_times else ()),
            _render_ranks(estimate),
            _render_basis(estimate),
        ]
    )


def _render_time(estimate: Estimate) -> list[str]:
    if estimate.time is not None:
        return render_step_time(estimate.time)
    if estimate.device is not None and estimate.device.key and estimate.plan.pp > 1:
        return wrap("Step time: not estimated, because waits between stages are not modelled")
    return []


def _render_head(estimate: Estimate) -> list[str]:
    shown = estimate.settings
    if len(shown) > _SHOWN_SETTINGS:
        changed = dict(estimate.plan.settings)
        shown = {name: value for name, value in shown.items() if name in ("batch", "seq", *changed)}
    dtypes = " and ".join(estimate.parameter_dtypes)
    parts = [f"{_render_count(estimate.parameter_count)} parameters in {dtypes}"]
    parts += [f"{name} {value}" for name, value in shown.items()]
    return [
        *wrap(f"{estimate.target}: {', '.join(parts)}"),
        *wrap(f"{estimate.plan.describe()}, {estimate.optimizer}"),
        *wrap(estimate.layout),
    ]


def _render_count(count: int) -> str:
    for size, name in ((10**9, "billion"), (10**6, "million")):
        if count >= size:
            return f"{count / size:.2f} {name}"
    return f"{count:,}"


def render_advice(advice: Sequence[Advice], too_large: tuple[int, str] | None = None) -> list[str]:
    """`too_large`: the size and the description of one tensor that alone exceeds the device."""
    lines = []
    if too_large is not None:
        size_bytes, tensor = too_large
        lines = wrap(
            f"One tensor alone exceeds the device: {tensor} needs {render_bytes(size_bytes)}. Only "
            "what makes it smaller can help."
        )
    if not advice:
        return [*lines, "None of the simulated changes saves memory."]
    room = min(38, text_width() - 41)  # of the changes; on a narrow terminal, figures stand below
    lines += [
        "Changes that save memory, each one simulated",
        f"  {'':{room}}{'saves':>9}{'needs':>10}",
    ]
    for each in advice:
        saves, needs = map(render_bytes, (each.saved_bytes, each.estimate.needed_bytes))
        longest = max(room - 1, *map(len, each.change.split()))
        above = textwrap.wrap(each.change, longest, break_on_hyphens=False)
        last = above.pop() if len(above[-1]) < room else ""
        lines += [f"  {line}" for line in above]
        verdict = each.estimate.verdict or ""
        lines.append(f"  {last:{room}}{saves:>9}{needs:>10}  {verdict}")
        lines += [f"    {line}" for line in wrap(f"cost: {each.cost}", "", 4)]
    if not any(each.estimate.fits for each in advice):
        lines += wrap(
            "None of them makes the run fit, also not together, nor do more devices: use a device "
            "with more memory, or a smaller model."
        )
    return lines


def _render_plan_command(command: str) -> list[str]:
    """The command is one line, to be copied."""
    if not command:
        return []
    return [
        *wrap("Perhaps not every block needs checkpointing. This finds the fastest choice:"),
        f"  {command}",
    ]


def _render_steps(estimate: Estimate) -> list[str]:
    first, steady = estimate.first_step_bytes, estimate.steady_step_bytes
    if first == steady:
        return [f"Tensor peak: {render_bytes(steady)} in every step"]
    later = "in later steps"
    if not estimate.is_steady:
        later = f"in step {estimate.step_count}, still changing"
    return [f"Tensor peak: {render_bytes(first)} in step 1, {render_bytes(steady)} {later}"]


_MOMENTS = {
    "init": "before the first step",
    "first": "in the first step",
    "steady": "in the last step",
}


def _render_moments(estimate: Estimate, names: Sequence[str]) -> list[str]:
    lines = [f"{'The most memory':27}{'tensors':>11}{'reserved':>11}"]
    for each in estimate.moments:
        if each.name in names:
            sizes = (render_bytes(each.tensor_bytes), render_bytes(each.reserved_bytes))
            lines.append(f"  {_MOMENTS[each.name]:25}{sizes[0]:>11}{sizes[1]:>11}")
    return lines


def _render_ranks(estimate: Estimate) -> list[str]:
    if estimate.world_size == 1:
        return []
    if len(estimate.ranks) == 1:
        (rank,) = estimate.ranks
        alike = len(rank.like_ranks)
        return wrap(
            f"Simulated rank {rank.rank}; {alike} of {estimate.world_size} ranks have shards of "
            "the same sizes."
        )
    lines = [f"{'Ranks':27}{'tensors':>11}{'needs':>11}"]
    for rank in estimate.ranks:
        label = f"  {rank.rank} (and {len(rank.like_ranks) - 1} like it)"
        mark = "  worst" if rank.rank == estimate.rank else ""
        sizes = f"{render_bytes(rank.peak_bytes):>11}{render_bytes(rank.needed_bytes):>11}"
        lines.append(f"{label:27}{sizes}{mark}")
    return lines


def _render_basis(estimate: Estimate) -> list[str]:
    assumed = estimate.assumptions
    parts = [f"context {render_bytes(assumed.context_bytes or 0)}"]
    if assumed.communication_bytes:
        parts.append(f"communication {render_bytes(assumed.communication_bytes)}")
    lines = wrap(f"Assumed {', '.join(parts)} (see --assume).", "  ")
    lines += wrap(f"Allocator settings: {_describe_settings(estimate)}.", "  ")
    lines += wrap(
        f"Simulated {estimate.simulated_device} with torch {estimate.torch_version}.", "  "
    )
    for note in estimate.notes:
        lines += wrap(note, "  ")
    duration = render_duration(round(estimate.seconds * 1e9))
    return [*lines, f"Simulated {estimate.step_count} steps in {duration}."]


def _describe_settings(estimate: Estimate) -> str:
    if estimate.alloc_conf is None:
        return "default; the band covers expandable segments, too"
    return estimate.alloc_conf or "default"


def render_sweep(points: Sequence[SweepPoint]) -> str:
    """A table, followed by the reason for each combination that cannot be simulated."""
    if not points:
        return "No run was simulated."
    names = [*points[0].values]
    widths = [
        min(24, 2 + max(len(name), *(len(point.values[name]) for point in points)))
        for name in names
    ]
    head = "".join(f"{shorten(n, w - 2):{w}}" for n, w in zip(names, widths, strict=True))
    lines = [f"{head}{'tensors':>10}{'needs':>11}{'margin':>11}  verdict"]
    faults: dict[str, int] = {}
    for point in points:
        cells = "".join(
            f"{shorten(point.values[n], w - 2):{w}}" for n, w in zip(names, widths, strict=True)
        )
        if point.estimate is None:
            number = faults.setdefault(point.fault, len(faults) + 1)
            lines.append(f"{cells}{'':32}  not possible ({number})")
        else:
            lines.append(cells + _render_cells(point.estimate))
    notes = [line for fault, i in faults.items() for line in wrap(f"({i}) {fault}", "    ")]
    return join_sections([lines, notes])


def _render_cells(estimate: Estimate) -> str:
    tensors = render_bytes(estimate.peak.total_bytes)
    margin = "" if estimate.margin_bytes is None else render_bytes(estimate.margin_bytes)
    needed = render_bytes(estimate.needed_bytes)
    return f"{tensors:>10}{needed:>11}{margin:>11}  {estimate.verdict or ''}"


def render_largest(name: str, tried: Sequence[tuple[int, Estimate]]) -> str:
    """A table of the values tried, in order, and the largest that fits."""
    fitting = [(value, found) for value, found in tried if found.fits]
    verdict = f"No tried value of {name} fits."
    if fitting:
        value, found = max(fitting, key=_value)
        assert found.device is not None
        verdict = f"Largest {name} that fits {found.device.name}: {value}"
        without_retries = [row for row in fitting if row[1].verdict == "fits"]
        if found.verdict != "fits" and without_retries:
            verdict += f" ({max(without_retries, key=_value)[0]} without allocator retries)"
    return f"{render_sweep(to_points(name, tried))}\n\n{verdict}"


def _value(row: tuple[int, Estimate]) -> int:
    return row[0]
