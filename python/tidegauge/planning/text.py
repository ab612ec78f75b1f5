# SPDX-License-Identifier: BSD-3-Clause
"""A plan as text: the answer first, then what it was compared with."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tidegauge._util.formatting import render_bytes
from tidegauge.estimation.time_text import describe_unknown
from tidegauge.planning.planner import PlanResult, Row
from tidegauge.report.text import join_lines, wrap

_DOES = {
    "none": "keep everything",
    "attention": "keep attention, recompute the rest",
    "selective": "keep attention and every product, recompute the rest",
    "full": "recompute everything",
}


def render_plan(found: PlanResult) -> str:
    lines = [
        *wrap(f"{found.chosen.estimate.target}: {found.chosen.estimate.plan.describe()}"),
        "",
        *wrap(_answer(found)),
        "",
        f"{'':16}{'peak':>12}{'step':>12}{'recompute':>12}",
        *(_render_row(row, row.name) for row in found.rows),
        _render_row(found.chosen, "plan"),
        "",
        *_render_blocks(found),
        "",
        *wrap(_basis(found)),
    ]
    return join_lines(lines)


def _answer(found: PlanResult) -> str:
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


def _render_blocks(found: PlanResult) -> Iterator[str]:
    for kind, group in itertools.groupby(
        range(len(found.blocks)), key=found.chosen.kinds.__getitem__
    ):
        positions = [*group]
        first, last = found.blocks[positions[0]], found.blocks[positions[-1]]
        name = first if first == last else f"{first} to {last}"
        yield f"{name}: {_DOES[kind]}"


def _basis(found: PlanResult) -> str:
    """What was proved, and what the figures rest on."""
    low, high = found.speed.band
    search = "No faster plan of the search fits."
    if found.gain_ns:
        search = (
            f"Plans that were not simulated are at most {found.gain_ns / 1e6:.1f} ms a step faster."
        )
    time = found.chosen.estimate.time
    unknown = f" {describe_unknown(time)}" if time and time.unknown_ops else ""
    return (
        f"Simulated {found.simulated} plans; each row is a run of its own. {search} Peaks are the "
        f"upper ends of their bands. Times are {found.speed.describe()}; expect {low:g} to "
        f"{high:g} times these; their ratios are closer.{unknown}"
    )
