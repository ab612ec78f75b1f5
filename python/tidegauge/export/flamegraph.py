# SPDX-License-Identifier: BSD-3-Clause
"""Collapsed stacks for flamegraph.pl, speedscope etc.: the bytes of a moment by owner or by line.

cpu;Net;blocks;0;Parameter 131072
cpu;train.py:40 main;train.py:12 Net.forward;Activation 4096
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tidegauge._util.formatting import make_printable
from tidegauge.report.lines import LineNames
from tidegauge.report.names import NO_LINE, NO_MODULE, UNNAMED_MODULE
from tidegauge.report.ranks import sort_ranks
from tidegauge.report.summary import Peak, Summary, TensorGroup, read_moment

OWNERS = ("module", "line")


def to_flamegraph(
    summaries: Sequence[Summary],
    *,
    at: str = "peak",
    by: str = "module",
    progress: Callable[[float], None] | None = None,
) -> str:
    """One row per owner and category with its bytes, which add up to the total of the moment.

    `by`: "module", or "line" for the recorded stacks, outermost frame first. `at`: "peak" of each
    device, "end" of the recording, "step:N" for the peak of a step, or the sequence number of an
    event. Raises ValueError for any other value, for two traces of the same rank, and if no lines
    were recorded.
    """
    if by not in OWNERS:
        raise ValueError(f"invalid owner '{by}' (expected {' or '.join(OWNERS)})")
    ordered = sort_ranks(summaries)
    stacks: dict[str, int] = {}
    for summary in ordered:
        rank = [f"rank {summary.rank}"] if len(ordered) > 1 else []
        for moment in _read_moments(summary, at, progress):
            if by == "line" and moment.tensors and not moment.lines:
                raise ValueError(
                    f"{summary.path} has no lines of the program; record it with "
                    "`tidegauge run` without --stacks"
                )
            names = LineNames(group.stack for group in moment.tensors)
            for group in moment.tensors:
                owners = _split_name(group.module) if by == "module" else _lines(group, names)
                frames = [*rank, moment.device, *owners, group.category]
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


def _lines(group: TensorGroup, names: LineNames) -> list[str]:
    """The frames of the allocation, outermost first."""
    return [names.frame(frame) for frame in reversed(group.stack)] if group.line else [NO_LINE]


def _clean(frame: str) -> str:
    """Replaces the characters that separate frames and lines."""
    return make_printable(frame).replace(";", ":")
