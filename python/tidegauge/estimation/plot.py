# SPDX-License-Identifier: BSD-3-Clause
"""Data for the plot of a sweep, drawn by `report/web/sweep.js`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidegauge.estimation.sweep import SweepPoint


def plot_sweep(points: Sequence[SweepPoint]) -> dict[str, Any]:
    """`names` of the swept values, and `points` with their values and an estimate or a fault."""
    rows = [{"values": [*point.values.values()], **_plot_point(point)} for point in points]
    return {"names": [*points[0].values] if points else [], "points": rows}


def _plot_point(point: SweepPoint) -> dict[str, Any]:
    found = point.estimate
    if found is None:
        return {"fault": point.fault}
    device = found.device
    return {
        "needed_bytes": found.needed_bytes,
        "low_bytes": found.low_bytes,
        "high_bytes": found.high_bytes,
        "margin_bytes": found.margin_bytes,
        "verdict": found.verdict,
        "device": device and {"name": device.name, "memory_bytes": device.memory_bytes},
    }
