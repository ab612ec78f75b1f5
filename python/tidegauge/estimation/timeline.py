# SPDX-License-Identifier: BSD-3-Clause
"""The modelled step as JSON for Perfetto and chrome://tracing: one slice per op."""

from __future__ import annotations

import json
from typing import Any

from tidegauge.estimation.step_record import StepRecord
from tidegauge.planning.speed import Speed

_PHASES = {1: "backward", 3: "recompute", 4: "optimizer step"}  # by the facts of a slice
_NS_PER_US = 1e3


def render_timeline(step: StepRecord, speed: Speed) -> str:
    """Each stream of the device is a thread. Times are modelled and start at 0."""
    modules, ops = step.module_names(), step.op_names()
    slices = step.slices(speed)
    events: list[dict[str, Any]] = [
        _name("process_name", 0, f"{speed.device}, one modelled step, {speed.describe()}"),
        *(
            _name("thread_name", stream, f"stream {stream}" if stream else "compute stream")
            for stream in sorted({each.stream for each in slices})
        ),
    ]
    for each in slices:
        phase = _PHASES.get(each.facts, "forward")
        events.append(
            {
                "ph": "X",
                "pid": 0,
                "tid": each.stream,
                "name": ops[each.call],
                "cat": phase,
                "ts": each.begin_ns / _NS_PER_US,
                "dur": (each.end_ns - each.begin_ns) / _NS_PER_US,
                "args": {"module": modules.get(each.module, ""), "phase": phase},
            }
        )
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})


def _name(kind: str, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": 0, "tid": thread, "name": kind, "args": {"name": name}}
