# SPDX-License-Identifier: BSD-3-Clause
"""Summaries as tables, for spreadsheets and data frames (columns: docs/exports.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tidegauge.report.ranks import sort_ranks
from tidegauge.report.summary import Summary, describe_moment

Cell = int | float | str


@dataclass(frozen=True)
class Table:
    """`make_rows` returns the cells after the first column, which is the rank."""

    columns: tuple[str, ...]
    make_rows: Callable[[Summary], Iterator[tuple[Cell, ...]]]

    def rows(self, summaries: Sequence[Summary]) -> Iterator[tuple[Cell, ...]]:
        """Raises ValueError if two summaries have the same rank."""
        for summary in sort_ranks(summaries):
            for row in self.make_rows(summary):
                yield (summary.rank, *row)


def _peaks(summary: Summary) -> Iterator[tuple[Cell, ...]]:
    for peak in summary.peaks:
        moment = (peak.step, peak.after_ns, peak.sequence, describe_moment(peak))
        for category, size_bytes in peak.categories.items():
            share = size_bytes / peak.total_bytes
            yield (peak.device, category, size_bytes, share, *moment)


def _modules(summary: Summary) -> Iterator[tuple[Cell, ...]]:
    for peak in summary.peaks:
        for module in peak.modules:
            sizes = (module.own_bytes, module.tree_bytes, module.saved_bytes)
            yield (peak.device, module.name, *sizes)


def _tensors(summary: Summary) -> Iterator[tuple[Cell, ...]]:
    for peak in summary.peaks:
        for group in peak.tensors:
            tensor = (group.op, group.dtype, group.shape, group.count, group.size_bytes)
            yield (peak.device, group.category, group.module, *tensor, group.line)


def _steps(summary: Summary) -> Iterator[tuple[Cell, ...]]:
    for step in summary.steps:
        for category, size_bytes in step.categories.items():
            yield (step.step, step.device, category, size_bytes, step.sequence)


def _units(summary: Summary) -> Iterator[tuple[Cell, ...]]:
    for peak in summary.peaks:
        for unit in peak.units:
            run = (unit.gather_count, unit.reduce_count, unit.longest_whole_ns)
            yield (peak.device, unit.name, unit.size_bytes, unit.peak_share, *run)


def _table(columns: str, make_rows: Callable[[Summary], Iterator[tuple[Cell, ...]]]) -> Table:
    return Table(("rank", *columns.split()), make_rows)


TABLES = {
    "peaks": _table(
        "device category size_bytes peak_share step after_ns sequence moment",
        _peaks,
    ),
    "modules": _table("device module own_bytes tree_bytes saved_bytes", _modules),
    "tensors": _table("device category module op dtype shape count size_bytes line", _tensors),
    "steps": _table("step device category size_bytes sequence", _steps),
    "units": _table(
        "device unit size_bytes peak_share gather_count reduce_count longest_whole_ns", _units
    ),
}
