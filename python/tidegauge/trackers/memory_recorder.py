# SPDX-License-Identifier: BSD-3-Clause
"""MemoryRecorder: keeps the events of a tracker in memory and writes a file only on request."""

from __future__ import annotations

import os
from collections.abc import Mapping

from tidegauge import _C
from tidegauge.trackers.recorder import add_versions


class MemoryRecorder:
    """Used like a Recorder, for short runs: it keeps 56 bytes for each event.

    `source` is read like a trace file, after the tracker was exited.
    """

    def __init__(self, facts: Mapping[str, str] | None = None) -> None:
        self.source = _C.MemoryTrace(add_versions(facts))

    def attach(self, tracker: _C.MemTracker) -> None:
        """Records the events of a tracker that has no events yet."""
        self.source.record(tracker)

    def flush(self) -> None:
        """Does nothing: events are available immediately."""

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Writes the trace file that a Recorder would have written. Raises OSError if it cannot."""
        self.source.save(os.fspath(path), overwrite)
