# SPDX-License-Identifier: BSD-3-Clause
"""Compares all events, operators and bytes of a real and a simulated run of one program."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from event_stream import Event, describe, read_events
from tidegauge import FSDPMemTracker, MemTracker, Recorder, simulate
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.utils._python_dispatch import TorchDispatchMode

Step = Callable[[], object]


@dataclass
class Program:
    """A program to train: `run` is one step, including the optimizer's."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    run: Step


Make = Callable[[], Program]
POLICIES: dict[Make, dict[str, Any]] = {}
"""Options of `simulate` for programs that read values."""


class _OpLog(TorchDispatchMode):
    """Each operator and the live bytes after it."""

    def __init__(self, tracker: Any) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._tracker = tracker

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        alive = self._tracker._native.splits(False).items()
        held = {str(device): sum(split.values()) for device, split in alive}
        self.lines.append(f"{func} {held}")
        return result


def _mode(program: Make, is_simulated: bool) -> AbstractContextManager[Any]:
    return simulate(**POLICIES.get(program, {})) if is_simulated else nullcontext()


def _make_tracker(program: Program, **options: Any) -> Any:
    if isinstance(program.model, FSDPModule):
        return FSDPMemTracker(program.model, program.optimizer, **options)
    tracker = MemTracker(**options)
    tracker.track_external(program.model, program.optimizer)
    return tracker


def record(make: Make, path: Path, *, is_simulated: bool, steps: int = 2) -> list[Event]:
    gc.collect()
    torch.manual_seed(0)
    gc.disable()  # so that cycles are freed at the same moments
    try:
        with _mode(make, is_simulated):
            program = make()
            recorder = Recorder(path)
            tracker = _make_tracker(program, record=recorder)
            with tracker:
                for _ in range(steps):
                    program.run()
            assert tracker._native.anomalies() == (0, "")
            recorder.close()
    finally:
        gc.enable()
    return read_events(path)


def log_ops(make: Make, *, is_simulated: bool) -> list[str]:
    gc.collect()
    torch.manual_seed(0)
    with _mode(make, is_simulated):
        program = make()
        tracker = _make_tracker(program)
        with tracker, _OpLog(tracker) as log:
            program.run()
    return log.lines


def first_difference(
    real: Sequence[Any], simulated: Sequence[Any], show: Callable[[Any], str] = str
) -> str | None:
    """The first difference with the lines before it; None if there is none."""
    for i, (a, b) in enumerate(itertools.zip_longest(real, simulated)):
        if a != b:
            before = "".join(f"\n  both:      {show(each)}" for each in real[max(0, i - 3) : i])
            return f"number {i}:{before}\n  real:      {show(a)}\n  simulated: {show(b)}"
    return None


def compare_events(make: Make, folder: Path) -> str | None:
    runs = [
        record(make, folder / f"{name}.tide", is_simulated=name == "simulated")
        for name in ("real", "simulated")
    ]
    assert any(event[0] == "born" for event in runs[0])
    return first_difference(*runs, describe)


def compare_ops(make: Make) -> str | None:
    real, simulated = (log_ops(make, is_simulated=each) for each in (False, True))
    assert real
    return first_difference(real, simulated)
