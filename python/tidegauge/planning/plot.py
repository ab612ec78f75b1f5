# SPDX-License-Identifier: BSD-3-Clause
"""Data for the plot of memory against time, drawn by `report/web/sweep.js`."""

from __future__ import annotations

from typing import Any

from tidegauge.planning.planner import PlanResult, Row


def list_plotted(found: PlanResult) -> list[Row]:
    """The front, and what the plan is compared with."""
    return [*{row.kinds: row for row in (*found.rows, *found.front, found.chosen)}.values()]


def plot_front(found: PlanResult) -> dict[str, Any]:
    """Like `estimation.plot.plot_sweep`. A line connects the plans that no other one beats."""
    front = {row.kinds for row in found.front}
    is_whole = found.budget_bytes == found.device.memory_bytes
    limit = {
        "name": found.device.name if is_whole else "the budget",
        "memory_bytes": found.budget_bytes,
    }
    points = [
        {
            "values": [f"{row.step_ns / 1e6:.1f}"],
            "name": "plan" if row.kinds == found.chosen.kinds else row.estimate.plan.ac,
            "is_apart": row.kinds not in front,
            "needed_bytes": row.estimate.needed_bytes,
            "low_bytes": row.estimate.low_bytes,
            "high_bytes": row.estimate.high_bytes,
            "margin_bytes": found.budget_bytes - row.estimate.high_bytes,
            "verdict": "fits" if row.fits else "does not fit",
            "device": limit,
        }
        for row in list_plotted(found)
    ]
    return {"names": ["ms a step"], "points": points}
