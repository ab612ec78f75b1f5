# SPDX-License-Identifier: BSD-3-Clause
"""Collapsed stacks for flamegraph.pl, speedscope etc.: the bytes of a moment by owner.

cpu;Net;blocks;0;Parameter 131072
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tidegauge._util.formatting import make_printable
from tidegauge.report.ranks import sort_ranks
from tidegauge.report.summary import NO_MODULE, UNNAMED_MODULE, Peak, Summary, read_moment


def to_flamegraph(
    summaries: Sequence[Summary],
    *,
    at: str = "peak",
    progress: Callable[[float], None] | None = None,
) -> str:
    """One line per module and category with its bytes, which add up to the total of the moment.

    `at`: "peak" of each device, "end" of the recording, "step:N" for the peak of a step, or the
    sequence number of an event. Raises ValueError for any other value, and for two traces of the
    same rank.
    """
    ordered = sort_ranks(summaries)
    stacks: dict[str, int] = {}
    for summary in ordered:
        rank = [f"rank {summary.rank}"] if len(ordered) > 1 else []
        for moment in _read_moments(summary, at, progress):
            for group in moment.tensors:
                frames = [*rank, moment.device, *_split_name(group.module), group.category]
                stack = ";".join(map(_clean, frames))
                stacks[stack] = stacks.get(stack, 0) + group.size_bytes
    return "".join(f"{stack} {stacks[stack]}\n" for stack in sorted(stacks))


def _read_moments(
    summary: Summary, at: str, progress: Callable[[float], None] | None
) -> Iterator[Peak]:
    if at == "peak":
        yield from summary.peaks
        return
    for device, sequence in _find_moments(summary, at):
        yield read_moment(summary.path, device, sequence, progress)


def _find_moments(summary: Summary, at: str) -> list[tuple[str, int]]:
    if at == "end":
        return [(device, summary.event_count) for device in summary.end]
    kind, _, number = at.rpartition(":")
    if kind in ("", "step") and number.isdecimal():
        if kind == "step":
            found = [(s.device, s.sequence) for s in summary.steps if s.step == int(number)]
        else:
            exists = 1 <= int(number) <= summary.event_count
            found = [(peak.device, int(number)) for peak in summary.peaks if exists]
        if found:
            return found
        raise ValueError(
            f"{summary.path} has no moment '{at}'; it has {summary.event_count:,} events and "
            f"{summary.step_count:,} steps"
        )
    raise ValueError(f"invalid moment '{at}' (expected peak, end, step:N or an event number)")


def _split_name(module: str) -> list[str]:
    return [module] if module in (NO_MODULE, UNNAMED_MODULE) else module.split(".")


def _clean(frame: str) -> str:
    """Replaces the characters that separate frames and lines."""
    return make_printable(frame).replace(";", ":")
