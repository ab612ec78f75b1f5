# SPDX-License-Identifier: BSD-3-Clause
"""From the clock of a trace, which starts anywhere, to the time of day, and to other traces."""

from __future__ import annotations

from datetime import datetime

from tidegauge.report.summary import Summary

_NS = 1_000_000_000


def epoch_shift_ns(summary: Summary) -> int:
    """To add to a time of the trace for the nanoseconds since 1970; to the second."""
    return _read_start(summary) * _NS - summary.started_ns


def begin_ns(summary: Summary, others: list[Summary]) -> int:
    """What to call 0 in a trace, so that it lies beside the others.

    Processes of one host have one clock. Between hosts the time of day has to do.
    """
    first = min(others, key=lambda each: (_read_start(each), each.started_ns))
    if _host(summary) == _host(first):
        return first.started_ns
    return summary.started_ns - (_read_start(summary) - _read_start(first)) * _NS


def _read_start(summary: Summary) -> int:
    try:
        return int(datetime.fromisoformat(summary.facts.get("started", "")).timestamp())
    except (ValueError, OverflowError, OSError):
        return 0


def _host(summary: Summary) -> str:
    return summary.facts.get("host", "")
