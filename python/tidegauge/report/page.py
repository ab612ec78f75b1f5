# SPDX-License-Identifier: BSD-3-Clause
"""The data of an HTML report: a JSON header, and columns of numbers beside it.

C++ reads the trace and makes the columns (src/analyze/timeline.h). This module adds names, and the
figures of the other reports. `report/web/columns.js` reads the output of `Page.pack`.
"""

from __future__ import annotations

import dataclasses
import json
import struct
from collections.abc import Sequence
from typing import Any

from tidegauge import _core
from tidegauge.allocator import DeviceMemory
from tidegauge.report.comparison import compare, describe_comparison
from tidegauge.report.explanation import explain_peak
from tidegauge.report.growth import describe_growth
from tidegauge.report.lines import LineNames, split_stack
from tidegauge.report.names import ROOT_UNIT, name_stranger, shorten_command
from tidegauge.report.ranks import describe_missing, merge_ranks
from tidegauge.report.run import Run
from tidegauge.report.summary import SIMULATED, Peak, Summary
from tidegauge.report.text import (
    describe_health,
    describe_run,
    describe_verdict,
    render_verdict,
)

#: The number of moments in all runs of a page together. It keeps the page below 25 MB.
MOST_MOMENTS = 1 << 20


class Page:
    """Runs side by side, with their comparison."""

    def __init__(self, title: str) -> None:
        self.title = title
        self._header: dict[str, Any] = {"categories": _list_categories(), "runs": []}
        self._columns: list[bytes] = []
        self._length = 0

    def add_run(
        self,
        run: Run,
        label: str,
        *,
        name: str | None = None,
        memory: DeviceMemory | None = None,
        step_time: dict[str, Any] | None = None,
    ) -> None:
        """Adds a run that was read with timelines.

        `name`: shown instead of the file name. `memory`: its device memory, if the caller has
        replayed it on a device. `step_time`: the modelled time of a step (estimation/time_text.py).
        """
        summary, source = run.summary, run.source
        devices, parameters = run.core.timeline_columns(summary.started_ns)
        lanes = run.core.unit_lane_columns(summary.started_ns)
        peaks = {peak.device: peak for peak in summary.peaks}
        order = {device: place for place, device in enumerate(peaks)}
        devices.sort(key=lambda device: order.get(device["device"], len(order)))
        self._header["runs"].append(
            {
                "label": label,
                "rank": summary.rank,
                "headline": describe_run(summary, name),
                "command": shorten_command(summary.facts.get("command", "")),
                "full_command": summary.facts.get("command", ""),
                "is_simulated": SIMULATED in summary.facts,
                "warnings": [
                    *_list_failures(run),
                    *_list_growth(summary),
                    *describe_health(summary),
                ],
                "failures": [failure.render() for failure in run.failures],
                "modules": {number: name for number, name, _ in source.modules()},
                "ops": source.ops(),
                "strangers": {number: name_stranger(op) for number, op in source.ops().items()},
                "tensors": {
                    number: f"{dtype} {shape}".strip()
                    for number, (dtype, shape) in source.tensors().items()
                },
                "stacks": _list_stacks(source),
                "names": parameters,
                "units": {number: name or ROOT_UNIT for number, name in lanes["names"].items()},
                "lanes": self._add_table(lanes["columns"], lanes["count"]),
                "devices": [
                    {
                        "device": device["device"],
                        **_peak_header(peaks.get(device["device"])),
                        **self._add_tables(device, ("moments", "contexts", "pieces")),
                    }
                    for device in devices
                ],
                "memory": self._add_memory(run, memory),
                "step_time": step_time,
            }
        )

    def add_comparison(self, before: Summary, after: Summary) -> None:
        comparison = compare(before, after)
        self._header["comparison"] = dataclasses.asdict(comparison)
        self._header["headline"] = describe_comparison(comparison)
        self._header["shown"] = 1

    def add_sweep(self, plot: dict[str, Any], headline: str, shown: int) -> None:
        """Sets the result of `estimation.plot.plot_sweep`, what it shows in a few words, and the
        number of the run to show first."""
        self._header["shown"] = shown
        self._header["sweep"] = plot
        self._header["headline"] = headline

    def add_ranks(self, summaries: Sequence[Summary]) -> None:
        """Raises ValueError if two traces have the same rank."""
        ranks = merge_ranks(summaries)
        missing = describe_missing(ranks)
        self._header["ranks"] = {**dataclasses.asdict(ranks), "missing": missing}

    def pack(self) -> bytes:
        header = json.dumps(self._header, separators=(",", ":"), ensure_ascii=False).encode(
            errors="replace"
        )
        return b"".join([struct.pack("<I", len(header)), header, *self._columns])

    def _add_memory(self, run: Run, memory: DeviceMemory | None) -> dict[str, Any] | None:
        requests = run.core.requests()
        if not run.summary.peaks or requests is None:
            return None
        memory = memory or run.memory
        layout = requests.layout_at_peak(memory.alloc_conf, memory.tie)
        reserved = requests.reserved_columns(memory.alloc_conf, memory.tie)
        verdict = render_verdict(memory.verdict) if memory.device else []
        return {
            "traced_device": memory.traced_device,
            "verdict": " ".join(verdict),
            "headline": describe_verdict(memory.verdict) if memory.device else "",
            "device_name": memory.device.name if memory.device else "",
            "device_bytes": memory.device.memory_bytes if memory.device else 0,
            "reserved": self._add_table(reserved["columns"], reserved["count"]),
            "layers": [dataclasses.asdict(layer) for layer in memory.layers],
            "layout": self._add_tables(layout, ("segments", "blocks")),
        }

    def _add_tables(self, owner: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
        return {name: self._add_table(owner[name], owner["counts"][name]) for name in names}

    def _add_table(self, columns: dict[str, bytes], count: int) -> dict[str, Any]:
        places = {}
        for name, column in columns.items():
            places[name] = (self._length, len(column))
            self._columns.append(column)
            self._length += len(column)
        return {"count": count, "columns": places}


def _list_stacks(source: _core.EventSource) -> dict[int, str]:
    """Frames, one per line, innermost first, with short names of files."""
    stacks = {number: split_stack(text) for number, text in source.stacks().items()}
    names = LineNames(stacks.values())
    return {number: "\n".join(map(names.frame, frames)) for number, frames in stacks.items()}


def _list_failures(run: Run) -> list[str]:
    """One sentence about the first failed allocation."""
    if not run.failures:
        return []
    text = run.failures[0].render().partition("\n")[0].removeprefix("tidegauge: ")
    others = f" {len(run.failures):,} allocations failed." if len(run.failures) > 1 else ""
    return [f"{text[:1].upper()}{text[1:]}.{others}"]


def _list_growth(summary: Summary) -> list[str]:
    return list(filter(None, [describe_growth(summary.growth)]))


def _peak_header(peak: Peak | None) -> dict[str, Any]:
    if peak is None:
        return {"peak": None, "explained": "", "units": []}
    return {
        "peak": {"sequence": peak.sequence, "total_bytes": peak.total_bytes},
        "explained": explain_peak(peak),
        "units": [dataclasses.asdict(unit) for unit in peak.units],
    }


def _list_categories() -> list[dict[str, Any]]:
    """Name, colour, place in charts and column in tables of units, by number."""
    return [
        {
            "name": row["name"],
            "colour": row["colour"],
            "place": row["place"],
            "unit_column": row["unit_column"],
        }
        for row in _core.category_table()
    ]
