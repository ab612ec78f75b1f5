# SPDX-License-Identifier: BSD-3-Clause
"""What a simulated step consists of: its ops, and the memory of its blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from torch import nn

from tidegauge import _C
from tidegauge.planning.speed import Speed
from tidegauge.trackers.mem_tracker import MemTracker
from tidegauge.trackers.printing import TOTAL_KEY

# The states of MemTracker and of FSDPMemTracker.
_BEFORE = ("Pre-Forward", "Before Pre-Forward")
_AFTER = ("Post-Forward", "After Post-Forward")
_PEAKS = ("Peak-Forward", "Peak-Backward", "Peak Forward", "Peak Backward")


class Slice(NamedTuple):
    """An op on a stream of the device, in nanoseconds since the step began. `call`: the number of
    its call; `facts`: those of `_C.OpLog.entries`; `module`: the innermost; 0 if none ran.
    """

    call: int
    stream: int
    facts: int
    module: int
    begin_ns: float
    end_ns: float


@dataclass(frozen=True)
class BlockRecord:
    """The bytes on the device before and after the block's forward, and its peak.

    `kind`: equal for blocks of one class with parameters of equal shapes. `recomputes`: positions
    in the log between which the block ran its forward inside a checkpoint.
    """

    name: str
    kind: str
    before_bytes: int
    after_bytes: int
    peak_bytes: int
    recomputes: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class StepRecord:
    """The entries of `log` from `begin` to `end` are the step."""

    log: _C.OpLog
    begin: int
    end: int
    blocks: tuple[BlockRecord, ...]

    def time(self, speed: Speed) -> dict[str, float]:
        """How long the step takes on a device: members of StepTime (src/plan/step_time.h)."""
        return self.log.time(self.begin, self.end, speed.device, dict(speed.constants))

    def recompute_ns(self, block: BlockRecord, speed: Speed) -> int:
        """The time in which the block recomputes."""
        return round(
            sum(
                self.log.time(begin, end, speed.device, dict(speed.constants))["recompute_ns"]
                for begin, end in block.recomputes
            )
        )

    def slices(self, speed: Speed) -> list[Slice]:
        """When each op runs, in the order of the program."""
        return self.slices_of(self.begin, self.end, speed)

    def slices_of(self, begin: int, end: int, speed: Speed) -> list[Slice]:
        """The same for a part of the step, between two positions in the log."""
        rows = self.log.slices(begin, end, speed.device, dict(speed.constants))
        return [Slice(*row) for row in rows]

    def op_names(self) -> list[str]:
        """By the number of the call."""
        return [call.op for call in self.log.calls()]

    def module_names(self) -> dict[int, str]:
        return self.log.module_names()


@dataclass
class StepRecorder:
    """Logs the ops within its context, and where the last step and its blocks begin."""

    model: nn.Module
    blocks: Sequence[nn.Module]
    log: _C.OpLog = field(default_factory=_C.OpLog)
    _begin: int = 0
    _recomputes: dict[int, list[tuple[int, int]]] = field(default_factory=dict)

    def __enter__(self) -> Self:
        self.log.start()
        return self

    def __exit__(self, *args: object) -> None:
        self.log.stop()

    def begin_step(self) -> None:
        self._begin = self.log.position
        self._recomputes.clear()

    def watch(self, position: int, forward: Callable[..., Any]) -> Callable[..., Any]:
        """The forward of a block that is checkpointed, which notes when it runs."""

        def run(*args: Any, **kwargs: Any) -> Any:
            begin = self.log.position
            try:
                return forward(*args, **kwargs)
            finally:  # a recompute ends with an exception when it has all that it needs
                self._recomputes.setdefault(position, []).append((begin, self.log.position))

        return run

    def finish(self, tracker: MemTracker, device: str) -> StepRecord:
        """Call before the tracker is left. Blocks that did not run are left out."""
        names = {id(module): name for name, module in self.model.named_modules()}
        records = []
        for position, block in enumerate(self.blocks):
            stats = tracker.memory_tracking.get(block)  # type: ignore[no-untyped-call]
            if stats is None:
                continue
            before = _read(stats.snapshots, _BEFORE, device)
            after = _read(stats.snapshots, _AFTER, device)
            if not before or not after:
                continue
            shapes = [tuple(each.shape) for each in block.parameters()]
            records.append(
                BlockRecord(
                    name=names[id(block)],
                    kind=f"{type(block).__qualname__} {shapes}",
                    before_bytes=before[0],
                    after_bytes=after[-1],
                    peak_bytes=max(_read(stats.snapshots, _PEAKS, device)),
                    recomputes=tuple(self._recomputes.get(position, ())),
                )
            )
        return StepRecord(self.log, self._begin, self.log.position, tuple(records))


def _read(snapshots: Any, states: Sequence[str], device: str) -> list[int]:
    """The total bytes on the device in each snapshot of these states."""
    return [
        sum(split[TOTAL_KEY] for place, split in snapshot.items() if place.type == device)
        for state, calls in snapshots.items()
        if state.value in states
        for snapshot in calls
    ]
