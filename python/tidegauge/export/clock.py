# SPDX-License-Identifier: BSD-3-Clause
"""Converts times of a trace, whose clock has an arbitrary start, to the time of day."""

from __future__ import annotations

from datetime import datetime

from tidegauge.report.summary import Summary

_NS = 1_000_000_000


def epoch_shift_ns(summary: Summary) -> int:
    """The offset from the trace's clock to nanoseconds since 1970, accurate to a second."""
    return _read_start(summary) * _NS - summary.started_ns


def begin_ns(summary: Summary, others: list[Summary]) -> int:
    """The time in a trace that becomes 0, so that all traces have a common start.

    Processes on one host share a clock. Between hosts, the time of day is used.
    """
    first = min(others, key=lambda each: (_read_start(each), each.started_ns))
    if _host(summary) == _host(first):
        return first.started_ns
    return summary.started_ns - (_read_start(summary) - _read_start(first)) * _NS


def _read_start(summary: Summary) -> int:
    text = summary.facts.get("started", "").replace("Z", "+00:00")  # Python 3.10 rejects Z
    try:
        return int(datetime.fromisoformat(text).timestamp())
    except (ValueError, OverflowError, OSError):
        return 0


def _host(summary: Summary) -> str:
    return summary.facts.get("host", "")
