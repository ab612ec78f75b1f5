# SPDX-License-Identifier: BSD-3-Clause
"""Estimates as text for people, at most 80 columns wide."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from tidegauge.estimation.advice import Advice
from tidegauge.estimation.estimator import Estimate
from tidegauge.estimation.sweep import SweepPoint, to_points
from tidegauge.report.text import (
    join_sections,
    render_bytes,
    render_duration,
    render_layer_rows,
    render_modules,
    render_peak,
    render_units,
    shorten,
    wrap,
)

_SHOWN_SETTINGS = 10  # configs have dozens, most of them of no interest


def render_estimate(estimate: Estimate, top: int, advice: Sequence[Advice] | None = None) -> str:
    """All that `tidegauge estimate` prints; `advice` is None if nobody asked for it."""
    return join_sections(
        [
            _render_head(estimate),
            render_verdict(estimate),
            [] if advice is None else render_advice(advice),
            ["On the device", *render_layer_rows(estimate.layers)],
            _render_steps(estimate),
            render_peak(estimate.peak),
            render_modules(estimate.peak, top),
            render_units(estimate.peak, top, with_times=False),
            _render_ranks(estimate),
            _render_basis(estimate),
        ]
    )


def _render_head(estimate: Estimate) -> list[str]:
    shown = estimate.settings
    if len(shown) > _SHOWN_SETTINGS:
        changed = dict(estimate.plan.settings)
        shown = {name: value for name, value in shown.items() if name in ("batch", "seq", *changed)}
    parts = [f"{_render_count(estimate.parameter_count)} parameters"]
    parts += [f"{name} {value}" for name, value in shown.items()]
    return [
        *wrap(f"{estimate.target}: {', '.join(parts)}"),
        *wrap(f"{estimate.plan.describe()}, {estimate.optimizer}"),
    ]


def _render_count(count: int) -> str:
    for size, name in ((10**9, "billion"), (10**6, "million")):
        if count >= size:
            return f"{count / size:.2f} {name}"
    return f"{count:,}"


def render_verdict(estimate: Estimate) -> list[str]:
    band = render_bytes(estimate.needed_bytes)
    if estimate.low_bytes < estimate.high_bytes:
        band += f" ({render_bytes(estimate.low_bytes)} to {render_bytes(estimate.high_bytes)})"
    if estimate.device is None or estimate.margin_bytes is None or estimate.verdict is None:
        lines = wrap(f"It takes {band} of a device.")
    else:
        has = f"{estimate.device.name} has {render_bytes(estimate.device.memory_bytes)}"
        word = estimate.verdict.capitalize()
        lines = wrap(f"{word}: it takes {band}, {has}, {_describe_margin(estimate)}.")
    if estimate.fits:
        return lines
    if estimate.smallest is None:
        return [*lines, "No device of the catalogue fits."]
    smallest = f"{estimate.smallest.name} ({estimate.smallest.key})"
    return lines + wrap(f"Smallest device of the catalogue that fits: {smallest}.")


def _describe_margin(estimate: Estimate) -> str:
    assert estimate.margin_bytes is not None
    margin = render_bytes(abs(estimate.margin_bytes))
    if estimate.margin_bytes >= 0:
        return f"{margin} to spare"
    if estimate.fits:
        return f"{margin} less, which the allocator gets by giving back its cache and retrying"
    return f"{margin} too little"


def render_advice(advice: Sequence[Advice]) -> list[str]:
    if not advice:
        return ["None of the changes that were simulated saves anything."]
    lines = ["What would change that, each simulated", f"  {'':38}{'saves':>9}{'takes':>10}"]
    for each in advice:
        saves, takes = map(render_bytes, (each.saved_bytes, each.estimate.needed_bytes))
        *above, last = textwrap.wrap(each.change, 37, break_on_hyphens=False)
        lines += [f"  {line}" for line in above]
        verdict = describe_verdict(each.estimate)
        lines.append(f"  {last:38}{saves:>9}{takes:>10}  {verdict}")
        lines += [f"    {line}" for line in wrap(f"costs {each.cost}")]
    return lines


def describe_verdict(estimate: Estimate) -> str:
    """For tables, in 18 characters."""
    return "fits after retries" if _needs_retries(estimate) else estimate.verdict or ""


def _needs_retries(estimate: Estimate) -> bool:
    """The allocator has to give back its cache and ask again."""
    return bool(estimate.fits and (estimate.margin_bytes or 0) < 0)


def _render_steps(estimate: Estimate) -> list[str]:
    first, steady = estimate.first_step_bytes, estimate.steady_step_bytes
    if first == steady:
        return [f"Peak of tensors in each step: {render_bytes(steady)}"]
    name = "then" if estimate.is_steady else f"step {estimate.step_count}, still changing"
    return [
        f"Peak of tensors in the first step: {render_bytes(first)}, {name}: {render_bytes(steady)}"
    ]


def _render_ranks(estimate: Estimate) -> list[str]:
    if estimate.world_size == 1:
        return []
    if len(estimate.ranks) == 1:
        (rank,) = estimate.ranks
        alike = len(rank.like_ranks)
        return wrap(
            f"Rank {rank.rank} was simulated; {alike} of {estimate.world_size} ranks have shards "
            "of its sizes."
        )
    lines = [f"{'Ranks':27}{'tensors':>11}{'takes':>11}"]
    for rank in estimate.ranks:
        label = f"  {rank.rank} (and {len(rank.like_ranks) - 1} alike)"
        mark = "  worst" if rank.rank == estimate.rank else ""
        sizes = f"{render_bytes(rank.peak_bytes):>11}{render_bytes(rank.needed_bytes):>11}"
        lines.append(f"{label:27}{sizes}{mark}")
    return lines


def _render_basis(estimate: Estimate) -> list[str]:
    assumed = estimate.assumptions
    parts = [f"context {render_bytes(assumed.context_bytes)}"]
    if assumed.communication_bytes:
        parts.append(f"communication {render_bytes(assumed.communication_bytes)}")
    lines = wrap(
        f"Assumed: {', '.join(parts)} (--assume); allocator settings "
        f"{estimate.alloc_conf or 'default'}; torch {estimate.torch_version} on "
        f"{estimate.simulated_device}.",
        "  ",
    )
    for note in estimate.notes:
        lines += wrap(note, "  ")
    steps = f"{estimate.step_count} steps"
    return [*lines, f"{steps} simulated in {render_duration(round(estimate.seconds * 1e9))}."]


def render_sweep(points: Sequence[SweepPoint]) -> str:
    """A table; what could not be run says why below it."""
    if not points:
        return "Nothing was simulated."
    names = [*points[0].values]
    widths = [
        min(24, 2 + max(len(name), *(len(point.values[name]) for point in points)))
        for name in names
    ]
    head = "".join(f"{shorten(n, w - 2):{w}}" for n, w in zip(names, widths, strict=True))
    lines = [f"{head}{'tensors':>10}{'takes':>11}{'margin':>11}  verdict"]
    faults: dict[str, int] = {}
    for point in points:
        cells = "".join(
            f"{shorten(point.values[n], w - 2):{w}}" for n, w in zip(names, widths, strict=True)
        )
        if point.estimate is None:
            number = faults.setdefault(point.fault, len(faults) + 1)
            lines.append(f"{cells}{'':32}  cannot be ({number})")
        else:
            lines.append(cells + _render_cells(point.estimate))
    notes = [line for fault, i in faults.items() for line in wrap(f"({i}) {fault}", "    ")]
    return join_sections([lines, notes])


def _render_cells(estimate: Estimate) -> str:
    tensors = render_bytes(estimate.peak.total_bytes)
    margin = "" if estimate.margin_bytes is None else render_bytes(estimate.margin_bytes)
    needed = render_bytes(estimate.needed_bytes)
    return f"{tensors:>10}{needed:>11}{margin:>11}  {describe_verdict(estimate)}"


def render_largest(name: str, tried: Sequence[tuple[int, Estimate]]) -> str:
    """What was tried, in order of the value, and the largest that fits."""
    fitting = [(value, found) for value, found in tried if found.fits]
    verdict = f"No {name} that was tried fits."
    if fitting:
        value, found = max(fitting, key=_value)
        assert found.device is not None
        verdict = f"Largest {name} that fits {found.device.name}: {value}"
        calm = [row for row in fitting if not _needs_retries(row[1])]
        if _needs_retries(found) and calm:
            verdict += f"; without retries of the allocator: {max(calm, key=_value)[0]}"
    return f"{render_sweep(to_points(name, tried))}\n\n{verdict}"


def _value(row: tuple[int, Estimate]) -> int:
    return row[0]
