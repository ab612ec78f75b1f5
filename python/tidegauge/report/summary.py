# SPDX-License-Identifier: BSD-3-Clause
"""A trace file as a value: C++ reads and counts (src/analyze/run.h), this module adds names."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from tidegauge._util.formatting import render_bytes
from tidegauge._util.notebook import render_peaks
from tidegauge._util.ordering import natural_order
from tidegauge.report.growth import Growth
from tidegauge.report.holders import name_holder, read_holders
from tidegauge.report.lines import LineNames, split_stack
from tidegauge.report.names import NO_LINE, NO_MODULE, ROOT_UNIT, UNNAMED_MODULE

if TYPE_CHECKING:
    from tidegauge import _core

SAVED = "Saved Activation"
#: The fact of a run without real time and memory.
SIMULATED = "simulated"
_SHOWN_CATEGORIES = 4
_MOST_RANKS = 1 << 20  # a damaged file may claim any number


@dataclass(frozen=True)
class TensorGroup:
    """Storages that were alive at the peak and have the same properties."""

    category: str
    module: str  # the module that was running at the birth; the owner of parameters and buffers
    op: str  # empty if unknown
    dtype: str  # dtype of the first tensor; empty if unknown
    shape: str  # "[2, 3]"
    count: int
    size_bytes: int
    line: str  # that allocated them, "train.py:25 Net.forward"; empty if not recorded
    stack: tuple[str, ...]  # frames of the allocation, innermost first; empty if not recorded


@dataclass(frozen=True)
class LineBytes:
    """The bytes at the peak that one line of the program allocated."""

    line: str  # "train.py:25 Net.forward"
    count: int
    size_bytes: int
    categories: dict[str, int]


@dataclass(frozen=True)
class ModuleBytes:
    """The bytes of a module at the peak."""

    name: str
    own_bytes: int
    tree_bytes: int  # with all modules below it
    saved_bytes: int  # of `tree_bytes`, activations that only backward needs
    categories: dict[str, int]  # of `tree_bytes`


@dataclass(frozen=True)
class UnitBytes:
    """The bytes of an FSDP2 unit (a param group) at the peak, and its gatherings in the run."""

    name: str  # relative to the root
    size_bytes: int
    peak_share: float
    categories: dict[str, int]
    gather_count: int
    reduce_count: int
    longest_whole_ns: int  # from an all-gather to the release


@dataclass(frozen=True)
class Peak:
    """The highest moment of a device."""

    device: str
    total_bytes: int
    categories: dict[str, int]  # the largest first
    saved_bytes: int  # activations that only the autograd graph kept alive, for backward
    sequence: int
    after_ns: int  # time since the start of the recording
    step: int  # 0: before the first
    in_optimizer_step: bool
    running: tuple[tuple[str, str], ...]  # (module, phase) of open calls, the innermost last
    modules: tuple[ModuleBytes, ...]  # the largest `tree_bytes` first
    tensors: tuple[TensorGroup, ...]  # the largest first
    lines: tuple[LineBytes, ...]  # the largest first; none if no lines were recorded
    units: tuple[UnitBytes, ...]  # the largest first; none if nothing was sharded


@dataclass(frozen=True)
class StepPeak:
    step: int
    device: str
    total_bytes: int
    categories: dict[str, int]
    sequence: int


@dataclass(frozen=True)
class Gap:
    sequence: int
    lost_events: int
    lost_steps: int
    reason: str


@dataclass(frozen=True)
class Health:
    is_complete: bool  # False: the process was killed, or is still running
    lost_events: int
    gaps: tuple[Gap, ...]
    anomaly_count: int  # events that contradict others; 0 unless the file is damaged
    first_anomaly: str
    hook_failure_count: int  # of tidegauge's own code; the training did not see them
    first_hook_failure: str
    dropped_events: int = 0  # on purpose (`run --keep`); peaks are those of the whole run
    dropped_steps: int = 0

    @property
    def is_good(self) -> bool:
        problems = self.lost_events or self.anomaly_count or self.hook_failure_count
        return self.is_complete and not problems


@dataclass(frozen=True)
class Summary:
    path: str
    facts: dict[str, str]  # command, host, rank, ...: docs/trace-format.md
    health: Health
    event_count: int
    storage_count: int
    module_count: int
    step_count: int
    optimizer_step_count: int
    duration_ns: int
    file_bytes: int
    peaks: tuple[Peak, ...]  # one per device, the largest first; meta last, as it has no memory
    steps: tuple[StepPeak, ...]  # the last 100,000 steps, one entry per step and device
    end: dict[str, dict[str, int]]  # bytes by device and category after the last event
    growth: tuple[Growth, ...]  # what the run keeps from step to step, the fastest first

    @property
    def rank(self) -> int:
        return min(max(_to_int(self.facts.get("rank"), 0), 0), _MOST_RANKS - 1)

    @property
    def started_ns(self) -> int:
        """Time of the steady clock; 0 if a damaged trace has none."""
        return _to_int(self.facts.get("started_ns"), 0)

    @property
    def world_size(self) -> int:
        return min(max(_to_int(self.facts.get("world_size"), 1), 1), _MOST_RANKS)

    @property
    def peak_bytes(self) -> int:
        """The peak of the device with the most bytes."""
        return self.peaks[0].total_bytes if self.peaks else 0

    def __str__(self) -> str:
        """A few lines: what grows, and the peak of each device by its largest categories."""
        lines = [f"{self.path or 'tracked run'}: {self.step_count:,} steps"]
        lines += [f"! {each}" for each in self.growth if each.is_large]
        for peak in self.peaks:
            largest = [f"{name} {render_bytes(size)}" for name, size in peak.categories.items()]
            lines.append(
                f"peak {render_bytes(peak.total_bytes)} on {peak.device}, {describe_moment(peak)}: "
                + ", ".join(largest[:_SHOWN_CATEGORIES])
            )
        return "\n".join(lines if self.peaks else [*lines, "no memory was tracked"])

    def _repr_html_(self) -> str:
        """For notebooks: what grows, the peak of each device, and of each step on the first one."""
        device = self.peaks[0].device if self.peaks else ""
        return render_peaks(
            self.path or "tracked run",
            {f"{peak.device}, {describe_moment(peak)}": peak.categories for peak in self.peaks},
            [step.total_bytes for step in self.steps if step.device == device],
            device,
            [str(each) for each in self.growth if each.is_large],
        )


def describe_moment(peak: Peak) -> str:
    """The moment of the peak: `in step 2, backward of Net.blocks.3`."""
    step = f"in step {peak.step}" if peak.step else "before the first step"
    if peak.in_optimizer_step:
        return f"{step}, optimizer step"
    if peak.running:
        module, phase = peak.running[-1]
        return f"{step}, {phase} of {module}"
    return step


def read_summary(
    path: str | os.PathLike[str], progress: Callable[[float], None] | None = None
) -> Summary:
    """Reads a trace file: peaks by category, module and tensor, steps, health.

    `progress` is called regularly with the finished share, from 0 to 1. Raises FormatError if the
    file is not a readable trace, OSError if it cannot be opened.
    """
    from tidegauge import _core

    path = os.fspath(path)
    source = _core.Reader(path)
    return make_summary(_core.ReadRun(source, progress=progress), source, path)


def make_summary(run: _core.ReadRun, source: _core.EventSource, path: str) -> Summary:
    """Adds names to the figures of a run. `path`: the trace file; empty if there is none."""
    counted = run.summary()
    names = _Names(source)
    facts = source.run_facts()
    started_ns = _to_int(facts.get("started_ns"), counted["first_ns"])
    gaps = tuple(
        Gap(gap["sequence"], gap["lost_events"], gap["lost_steps"], gap["reason"])
        for gap in source.gaps()
    )
    drops = source.drops()
    units = run.units()
    peaks = [_make_peak(peak, names, started_ns, units) for peak in counted["peaks"]]
    return Summary(
        path=path,
        facts=facts,
        health=Health(
            is_complete=source.is_complete(),
            lost_events=sum(gap.lost_events for gap in gaps),
            gaps=gaps,
            anomaly_count=counted["anomaly_count"],
            first_anomaly=counted["first_anomaly"],
            hook_failure_count=_to_int(facts.get("hook_failures"), 0),
            first_hook_failure=facts.get("first_hook_failure", ""),
            dropped_events=sum(drop["events"] for drop in drops),
            dropped_steps=sum(drop["steps"] for drop in drops),
        ),
        event_count=counted["event_count"],
        storage_count=counted["storage_count"],
        module_count=len(names.modules),
        step_count=counted["step_count"],
        optimizer_step_count=counted["optimizer_step_count"],
        duration_ns=max(0, counted["last_ns"] - started_ns) if counted["event_count"] else 0,
        file_bytes=os.stat(path).st_size if path else 0,
        peaks=tuple(sorted(peaks, key=lambda peak: (peak.device == "meta", -peak.total_bytes))),
        steps=tuple(
            StepPeak(step, device, sum(split.values()), largest_first(split), sequence)
            for step, devices in counted["steps"]
            for device, sequence, _, _, split in devices
        ),
        end={device: largest_first(split) for device, _, _, _, split in counted["end"]},
        growth=tuple(_make_growth(row, names, read_holders(facts)) for row in run.growth()),
    )


def read_moment(
    path: str | os.PathLike[str],
    device: str,
    sequence: int,
    progress: Callable[[float], None] | None = None,
) -> Peak:
    """The state of a device after event `sequence`, in the form of a peak; without FSDP2 units."""
    from tidegauge import _core

    reader = _core.Reader(os.fspath(path))
    moment = _core.read_moment(reader, device, sequence, progress)
    started_ns = _to_int(reader.run_facts().get("started_ns"), 0)
    return _make_peak(moment, _Names(reader), started_ns, [])


def largest_first(categories: dict[str, int]) -> dict[str, int]:
    return dict(sorted(categories.items(), key=lambda item: (-item[1], item[0])))


class _Names:
    """The names of the ids in a trace."""

    def __init__(self, source: _core.EventSource) -> None:
        self.modules = {number: name for number, name, _ in source.modules()}
        self.ops = source.ops()
        self.tensors = source.tensors()
        self.stacks = {number: split_stack(text) for number, text in source.stacks().items()}
        self.lines = LineNames(self.stacks.values())

    def module(self, number: int) -> str:
        if number == 0:
            return NO_MODULE
        return self.modules.get(number) or UNNAMED_MODULE

    def group(
        self,
        category: str,
        module: int,
        op: int,
        tensor: int,
        stack: int,
        count: int,
        size_bytes: int,
    ) -> TensorGroup:
        dtype, shape = self.tensors.get(tensor, ("", ""))
        frames = self.stacks.get(stack, ())
        return TensorGroup(
            category,
            self.module(module),
            self.ops.get(op, ""),
            dtype,
            shape,
            count,
            size_bytes,
            self.lines.line(frames),
            frames,
        )


def _order_by_name(groups: Iterable[TensorGroup]) -> tuple[TensorGroup, ...]:
    """Orders groups of equal size and category by name; C++ orders them by id."""

    def by_name(group: TensorGroup) -> tuple[Any, ...]:
        return natural_order(group.module), group.op, group.dtype, group.shape, group.stack

    alike = groupby(groups, key=lambda group: (group.size_bytes, group.category))
    return tuple(group for _, run in alike for group in sorted(run, key=by_name))


def _make_peak(
    peak: dict[str, Any], names: _Names, started_ns: int, units: list[dict[str, Any]]
) -> Peak:
    tensors = _order_by_name(names.group(*group) for group in peak["groups"])
    categories = largest_first(peak["categories"])
    total_bytes = sum(categories.values())
    of_device = [_make_unit(unit, peak["device"], total_bytes) for unit in units]
    return Peak(
        device=peak["device"],
        total_bytes=total_bytes,
        categories=categories,
        saved_bytes=categories.get(SAVED, 0),
        sequence=peak["sequence"],
        after_ns=peak["time_ns"] - started_ns,
        step=peak["step"],
        in_optimizer_step=peak["in_optimizer_step"],
        running=tuple((names.module(module), phase) for module, phase in peak["running"]),
        modules=tuple(_add_up_tree(tensors)),
        tensors=tensors,
        lines=tuple(_add_up_lines(tensors)),
        units=tuple(
            sorted(
                (unit for unit in of_device if unit.categories),
                key=lambda unit: (-unit.size_bytes, natural_order(unit.name)),
            )
        ),
    )


def _make_unit(unit: dict[str, Any], device: str, peak_bytes: int) -> UnitBytes:
    categories = largest_first(unit["at_peak"].get(device, {}))
    size_bytes = sum(categories.values())
    return UnitBytes(
        name=unit["name"] or ROOT_UNIT,
        size_bytes=size_bytes,
        peak_share=size_bytes / peak_bytes if peak_bytes else 0.0,
        categories=categories,
        gather_count=unit["gather_count"],
        reduce_count=unit["reduce_count"],
        longest_whole_ns=unit["longest_whole_ns"],
    )


def _make_growth(row: dict[str, Any], names: _Names, holders: list[dict[str, Any]]) -> Growth:
    dtype, shape = names.tensors.get(row["tensor"], ("", ""))
    frames = names.stacks.get(row["stack"], ())
    return Growth(
        device=row["device"],
        category=row["category"],
        module=names.module(row["module"]),
        op=names.ops.get(row["op"], ""),
        dtype=dtype,
        shape=shape,
        count=row["count"],
        size_bytes=row["size_bytes"],
        since_step=row["since_step"],
        last_step=row["last_step"],
        bytes_per_step=row["bytes_per_step"],
        line=names.lines.line(frames),
        stack=frames,
        holder=name_holder(holders, f"{dtype} {shape}".strip(), row["count"]),
    )


def _add_up_lines(groups: Sequence[TensorGroup]) -> list[LineBytes]:
    """Adds up to the total of the groups, with NO_LINE for the rest; none without any line."""
    if not any(group.line for group in groups):
        return []
    counts: dict[str, int] = {}
    splits: dict[str, dict[str, int]] = {}
    for group in groups:
        line = group.line or NO_LINE
        counts[line] = counts.get(line, 0) + group.count
        split = splits.setdefault(line, {})
        split[group.category] = split.get(group.category, 0) + group.size_bytes
    lines = [
        LineBytes(line, counts[line], sum(split.values()), largest_first(split))
        for line, split in splits.items()
    ]
    return sorted(lines, key=lambda each: (-each.size_bytes, each.line))


def _add_up_tree(groups: Iterable[TensorGroup]) -> list[ModuleBytes]:
    """Adds up each module and its parents, even parents that are never called (a ModuleList)."""
    own: dict[str, int] = {}
    trees: dict[str, dict[str, int]] = {}
    for group in groups:
        own[group.module] = own.get(group.module, 0) + group.size_bytes
        name = group.module
        while name:
            tree = trees.setdefault(name, {})
            tree[group.category] = tree.get(group.category, 0) + group.size_bytes
            name = name.rpartition(".")[0]
    modules = [
        ModuleBytes(
            name=name,
            own_bytes=own.get(name, 0),
            tree_bytes=sum(tree.values()),
            saved_bytes=tree.get(SAVED, 0),
            categories=largest_first(tree),
        )
        for name, tree in trees.items()
    ]
    return sorted(modules, key=lambda module: (-module.tree_bytes, module.name))


def _to_int(text: str | None, otherwise: int) -> int:
    try:
        return int(text) if text is not None else otherwise
    except ValueError:
        return otherwise
