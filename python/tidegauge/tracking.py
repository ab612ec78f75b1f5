# SPDX-License-Identifier: BSD-3-Clause
"""`track`: tracks a few steps and shows where their memory went, without files.

with tidegauge.track(model, optimizer) as memory:
    train_some_steps()
memory  # in a notebook: a table and a chart; print(memory) elsewhere
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from tidegauge import _core
from tidegauge._torch.entering import Entering
from tidegauge.report.summary import Summary, make_summary
from tidegauge.trackers.memory_recorder import MemoryRecorder
from tidegauge.trackers.script_tracker import ScriptTracker


class TrackedRun(Entering):
    """The memory of the code within the context. Keeps 56 bytes for each event."""

    def __init__(self, *external: Any, stacks: str = "python") -> None:
        self._recorder = MemoryRecorder({"command": "tidegauge.track"})
        self._tracker = ScriptTracker(record=self._recorder, stacks=stacks)
        self._tracker.track_external(*external)
        self._is_over = False

    def _set_depth(self, depth: int) -> None:
        self._tracker._set_depth(depth)
        self._is_over = depth < self._depth
        self._depth = depth

    @cached_property
    def summary(self) -> Summary:
        """Peaks by category, module, tensor and line; steps; growth. For use after the context."""
        if not self._is_over:
            raise RuntimeError("the summary is available after the `with` block of track()")
        source = self._recorder.source
        return make_summary(_core.ReadRun(source), source, "")

    def __str__(self) -> str:
        return str(self.summary) if self._is_over else "tracked run, not over yet"

    def _repr_html_(self) -> str:
        return self.summary._repr_html_() if self._is_over else str(self)


def track(*external: Any, stacks: str = "python") -> TrackedRun:
    """Tracks the code of a `with` block: the peak by category, module, tensor and line.

    `external`: modules, optimizers and tensors that were made before. `stacks`: "python" records
    the lines that allocate, "module" the running modules, "none" neither.
    """
    return TrackedRun(*external, stacks=stacks)
