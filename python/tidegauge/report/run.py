# SPDX-License-Identifier: BSD-3-Clause
"""One run of a report: its file is opened once and its events are read in two passes.

C++ reads and counts (src/analyze/run.h); Python adds names and text.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from tidegauge.report.summary import Summary, make_summary

if TYPE_CHECKING:
    from tidegauge import _core
    from tidegauge.allocator import DeviceMemory


class Run:
    """A trace file with all data of reports."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        max_moments: int | None = None,
        progress: Callable[[float], None] | None = None,
    ) -> None:
        """Reads the events. `max_moments`: also reads timelines, with at most this many moments.

        Raises FormatError if the file is not a readable trace, OSError if it cannot be opened.
        """
        from tidegauge import _core

        self.path = os.fspath(path)
        self.source: _core.EventSource = _core.Reader(self.path)
        self.core = _core.ReadRun(self.source, max_moments, True, progress)

    @cached_property
    def summary(self) -> Summary:
        return make_summary(self.core, self.source, self.path)

    @cached_property
    def failures(self) -> list[_core.PostMortem]:
        """The failed allocations, in order."""
        return self.source.failures()

    @cached_property
    def memory(self) -> DeviceMemory:
        """The memory that the run would need on a CUDA device."""
        from tidegauge.allocator.device_memory import replay_requests

        requests = self.core.requests()
        assert requests is not None
        return replay_requests(
            requests,
            self.summary.facts,
            trace=self.path,
            traced_device=self.core.requested_device,
            catalogue=(),
            has_settings=False,
        )
