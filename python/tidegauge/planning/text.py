# SPDX-License-Identifier: BSD-3-Clause
"""A plan as text: the answer first, then what it was compared with."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from tidegauge._util.formatting import render_bytes, shorten
from tidegauge.estimation.plan import Plan
from tidegauge.estimation.time_text import describe_unknown, render_ms
from tidegauge.planning.block_checkpointing import group_by_module, list_kept
from tidegauge.planning.block_model import BlockEffect
from tidegauge.planning.configurations import Variant
from tidegauge.planning.planner import PlanResult, Row
from tidegauge.report.text import join_lines, wrap

_DOES = {
    "none": "keep everything",
    "attention": "keep attention, recompute the rest",
    "selective": "keep attention and every product, recompute the rest",
    "full": "recompute everything",
}


def render_plan(found: PlanResult, variants: Sequence[Variant] = ()) -> str:
    """`variants`: the combinations that were tried; `found` belongs to one of them."""
    lines = [
        *wrap(f"{found.chosen.estimate.target}: {_describe_plan(found.chosen.estimate.plan)}"),
        *wrap(found.rows[-1].estimate.layout),  # of what is checkpointed
        "",
        *wrap(describe_answer(found)),
        "",
        f"{'':16}{'peak':>12}{'step':>12}{'recompute':>12}",
        *(_render_row(row, row.name) for row in found.rows),
        _render_row(found.chosen, "plan"),
        "",
        *_render_front(found),
        *_render_variants(found, variants),
        *_render_blocks(found),
        "",
        *wrap(_basis(found)),
    ]
    return join_lines(lines)


def _describe_plan(plan: Plan) -> str:
    """Without the names of ops, which are too long for a line; they follow by block."""
    if "keep=" not in plan.ac:
        return plan.describe()
    without = plan.change(ac="none").describe()
    return without.replace("no checkpointing", "checkpointing by op")


def describe_answer(found: PlanResult) -> str:
    """The answer in a sentence."""
    spare = found.budget_bytes - found.chosen.estimate.high_bytes
    fits = f"Fits {render_bytes(found.budget_bytes)} with {render_bytes(spare)} to spare"
    if set(found.chosen.kinds) == {"none"}:
        return f"{fits}, without checkpointing."
    return f"{fits}, about {max(found.slowdown, 0):.1%} slower than without checkpointing."


def _render_row(row: Row, name: str) -> str:
    peak = render_bytes(row.estimate.high_bytes)
    step, recompute = row.step_ns / 1e6, row.time["recompute_ns"] / 1e6
    mark = "" if row.fits else "  does not fit"
    return f"  {name:14}{peak:>12}{step:>9,.1f} ms{recompute:>9,.1f} ms{mark}"


def _render_front(found: PlanResult) -> list[str]:
    """What more or less memory would change."""
    if len(found.front) < 2:
        return []
    lines = [f"{'no simulated plan beats these':40}{'peak':>12}{'step':>12}"]
    for row in found.front:
        name = shorten(row.estimate.plan.ac, 37)
        mark = "  plan" if row.estimate.plan == found.chosen.estimate.plan else ""
        peak, step = render_bytes(_peak_of(row)), f"{row.step_ns / 1e6:,.1f} ms"
        lines.append(f"  {name:38}{peak:>12}{step:>12}{mark}")
    return [*lines, ""]


def _peak_of(row: Row) -> int:
    return row.estimate.high_bytes


def _render_variants(found: PlanResult, variants: Sequence[Variant]) -> list[str]:
    """One line each, the fastest first; the checkpointing is that of its own plan."""
    if len(variants) < 2:
        return []
    lines = [f"{'combinations':38}{'peak':>12}{'step':>12}"]
    for each in variants:
        row = each.result.chosen if each.result else each.fastest
        step = f"{row.step_ns / 1e6:,.1f} ms"
        head = f"  {describe_variant(each.plan):36}"
        if each.result is not None:
            mark = "  chosen" if each.result is found else ""
            lines.append(f"{head}{render_bytes(row.estimate.high_bytes):>12}{step:>12}{mark}")
        elif each.is_slower:
            lines.append(f"{head}{'':12}{step:>12}  or more: slower")
        else:
            lines.append(f"{head}{render_bytes(each.least_bytes):>12}{'':12}  does not fit")
    return [*lines, ""]


def describe_variant(plan: Plan) -> str:
    """`batch 4 x 2, reshard no, offload`"""
    parts = []
    batch = dict(plan.settings).get("batch")
    if batch is not None:
        parts.append(f"batch {batch} x {plan.accumulate}")
    if plan.reshard != "auto":
        parts.append(f"reshard {plan.reshard}")
    if plan.wrap > 1:
        parts.append(f"wrap {plan.wrap}")
    if plan.offload:
        parts.append("offload")
    return ", ".join(parts) or "as given"


def _render_blocks(found: PlanResult) -> Iterator[str]:
    for kind, group in itertools.groupby(
        range(len(found.blocks)), key=found.chosen.kinds.__getitem__
    ):
        positions = [*group]
        first, last = found.blocks[positions[0]], found.blocks[positions[-1]]
        name = first if first == last else f"{first} to {last}"
        yield from wrap(
            f"{name}: {_describe_kind(kind)}{_describe_effects(found.effects, positions)}"
        )


def _describe_kind(kind: str) -> str:
    """`keep bmm, and mm of mlp.up, mlp.down; recompute the rest`"""
    if kind in _DOES:
        return _DOES[kind]
    names = []
    for module, ops in group_by_module(list_kept(kind)).items():
        shown = ", ".join("attention" if "attention" in op else op for op in ops)
        names.append((shown, module))
    parts = []
    for shown, group in itertools.groupby(names, key=lambda name: name[0]):
        modules = ", ".join(module for _, module in group)
        parts.append(f"{shown} of {modules}" if modules else shown)
    return f"keep {', and '.join(parts)}; recompute the rest"


def _describe_effects(effects: Sequence[BlockEffect], positions: Sequence[int]) -> str:
    """`; each saves 1.27 GiB for 3.4 ms`, or both ends of a range."""
    saved = [effects[position].saved_bytes for position in positions]
    times = [effects[position].recompute_ns for position in positions]
    if not any(saved) and not any(times):
        return ""
    low, high = render_bytes(min(saved)), render_bytes(max(saved))
    fast, slow = render_ms(min(times) / 1e6), render_ms(max(times) / 1e6)
    bytes_text = low if low == high else f"{low} to {high}"
    time_text = fast if fast == slow else f"{fast} to {slow}"
    verb = "this saves" if len(positions) == 1 else "each saves"
    return f"; {verb} {bytes_text} for {time_text}"


def _basis(found: PlanResult) -> str:
    """What was proved, and what the figures rest on."""
    low, high = found.speed.band
    search = "No faster plan of the search fits."
    if found.gain_ns:
        search = (
            "Plans that were not simulated are at most "
            f"{render_ms(found.gain_ns / 1e6)} a step faster."
        )
    if found.gap_ns:
        search += f" {render_ms(found.gap_ns / 1e6)} of it because the search rounded times."
    if found.irregular_ns:
        search += (
            " Unequal choices side by side (--irregular) could gain "
            f"{render_ms(found.irregular_ns / 1e6)} by the search."
        )
    time = found.chosen.estimate.time
    unknown = f" {describe_unknown(time)}" if time and time.unknown_ops else ""
    return (
        f"Simulated {found.simulated} plans; each row is a run of its own. {search} Peaks are the "
        f"upper ends of their bands. Times are {found.speed.describe()}; expect {low:g} to "
        f"{high:g} times these; their ratios are closer.{unknown}"
    )
