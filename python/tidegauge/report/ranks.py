# SPDX-License-Identifier: BSD-3-Clause
"""Compares the ranks of one run: which rank has the highest peak, and the imbalance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidegauge._util.formatting import render_bytes, shorten, text_width
from tidegauge.report.summary import Summary, describe_moment, largest_first
from tidegauge.report.text import join_sections, name_device, wrap

_SHOWN_MISSING = 16


@dataclass(frozen=True)
class RankPeak:
    rank: int
    path: str
    host: str
    device: str
    total_bytes: int
    categories: dict[str, int]
    step: int
    moment: str
    step_count: int
    is_complete: bool


@dataclass(frozen=True)
class Spread:
    """A category, or the total, over the ranks. A missing category counts as 0."""

    name: str
    least_bytes: int
    mean_bytes: int
    most_bytes: int
    worst_rank: int
    imbalance: float  # how far the worst rank is above the mean: 0.1 is 10 %


@dataclass(frozen=True)
class DeviceRanks:
    device_type: str  # "cpu", "cuda": each rank has its own index
    ranks: tuple[RankPeak, ...]
    total: Spread
    categories: tuple[Spread, ...]


@dataclass(frozen=True)
class Ranks:
    world_size: int
    missing_ranks: tuple[int, ...]
    devices: tuple[DeviceRanks, ...]


def sort_ranks(summaries: Sequence[Summary]) -> list[Summary]:
    """Sorts by rank. Raises ValueError if two traces have the same rank."""
    by_rank: dict[int, Summary] = {}
    for summary in summaries:
        if other := by_rank.get(summary.rank):
            raise ValueError(
                f"{other.path} and {summary.path} are both from rank {summary.rank}; pass one file "
                "per rank, or compare two runs with `tidegauge diff`"
            )
        by_rank[summary.rank] = summary
    return [by_rank[rank] for rank in sorted(by_rank)]


def merge_ranks(summaries: Sequence[Summary]) -> Ranks:
    """Raises ValueError if two traces have the same rank."""
    ordered = sort_ranks(summaries)
    known = {summary.rank for summary in ordered}
    world_size = max(summary.world_size for summary in summaries)
    rows = [row for summary in ordered for row in _rank_peaks(summary)]
    types = dict.fromkeys(row.device.partition(":")[0] for row in rows)
    devices = [_merge_device(name, rows) for name in types]
    return Ranks(
        world_size,
        tuple(rank for rank in range(world_size) if rank not in known),
        tuple(sorted(devices, key=lambda device: device.device_type == "meta")),
    )


def _rank_peaks(summary: Summary) -> list[RankPeak]:
    return [
        RankPeak(
            rank=summary.rank,
            path=summary.path,
            host=summary.facts.get("host", ""),
            device=peak.device,
            total_bytes=peak.total_bytes,
            categories=peak.categories,
            step=peak.step,
            moment=describe_moment(peak),
            step_count=summary.step_count,
            is_complete=summary.health.is_complete,
        )
        for peak in summary.peaks
    ]


def _merge_device(device_type: str, rows: Sequence[RankPeak]) -> DeviceRanks:
    ranks = tuple(row for row in rows if row.device.partition(":")[0] == device_type)
    most: dict[str, int] = {}
    for row in ranks:
        for name, size in row.categories.items():
            most[name] = max(size, most.get(name, 0))
    return DeviceRanks(
        device_type,
        ranks,
        _spread("total", [(row.rank, row.total_bytes) for row in ranks]),
        tuple(
            _spread(name, [(row.rank, row.categories.get(name, 0)) for row in ranks])
            for name in largest_first(most)
        ),
    )


def _spread(name: str, sizes: Sequence[tuple[int, int]]) -> Spread:
    worst_rank, most = max(sizes, key=lambda item: item[1])
    mean = sum(size for _, size in sizes) / len(sizes)
    return Spread(
        name=name,
        least_bytes=min(size for _, size in sizes),
        mean_bytes=round(mean),
        most_bytes=most,
        worst_rank=worst_rank,
        imbalance=round(most / mean - 1, 6) if mean else 0.0,
    )


def render_ranks(ranks: Ranks) -> str:
    """The output of `tidegauge merge`."""
    sections: list[list[str]] = [_render_device(device, ranks) for device in ranks.devices]
    if not sections:
        sections.append(["None of these ranks created a tensor while it was recorded."])
    sections.append(wrap(describe_missing(ranks), "  "))
    return join_sections(sections)


def describe_missing(ranks: Ranks) -> str:
    """Empty if no rank is missing."""
    if not ranks.missing_ranks:
        return ""
    missing = ", ".join(map(str, ranks.missing_ranks[:_SHOWN_MISSING]))
    if (more := len(ranks.missing_ranks) - _SHOWN_MISSING) > 0:
        missing += f" and {more:,} more"
    return f"Missing ranks (of {ranks.world_size}): {missing}"


def _render_device(device: DeviceRanks, ranks: Ranks) -> list[str]:
    total = device.total
    lines = wrap(
        f"Highest peak on {name_device(device.device_type)}: {render_bytes(total.most_bytes)} on "
        f"rank {total.worst_rank}, {total.imbalance:.1%} above the mean of "
        f"{render_bytes(total.mean_bytes)}"
    )
    lines += ["", f"{'rank':>6}  {'device':9}{'peak':>11}{'vs mean':>9}  when"]
    for row in device.ranks:
        share = row.total_bytes / total.mean_bytes - 1 if total.mean_bytes else 0.0
        when = row.moment + ("" if row.is_complete else " (killed)")
        lines.append(
            f"{row.rank:>6}  {row.device:9}{render_bytes(row.total_bytes):>11}{share:>+9.1%}  "
            f"{shorten(when, text_width() - 40)}"
        )
    lines += [
        "",
        f"{'at the peak of each rank':24}{'lowest':>11}{'mean':>11}{'highest':>11}{'rank':>6}"
        f"{'imbalance':>11}",
    ]
    for spread in (*device.categories, total):
        lines.append(
            f"  {spread.name:22}{render_bytes(spread.least_bytes):>11}"
            f"{render_bytes(spread.mean_bytes):>11}{render_bytes(spread.most_bytes):>11}"
            f"{spread.worst_rank:>6}{spread.imbalance:>+11.1%}"
        )
    return lines
