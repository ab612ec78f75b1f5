# SPDX-License-Identifier: BSD-3-Clause
"""Recorder: writes the events of a tracker to a trace file (docs/trace-format.md)."""

from __future__ import annotations

import atexit
import os
import warnings
import weakref
from collections.abc import Mapping

import torch

from tidegauge import _C
from tidegauge._build_info import __version__
from tidegauge._util.keep import parse_keep

__all__ = ["Recorder"]


def add_versions(facts: Mapping[str, str] | None) -> dict[str, str]:
    """The facts of a run, with the versions that recorded it."""
    versions = {"torch_version": torch.__version__, "tidegauge_version": __version__}
    return {**versions, **(facts or {})}


class Recorder:
    """Records the events of one tracker: `MemTracker(record=Recorder("run.tide"))`.

    A separate thread writes the file every quarter of a second. If the disk is full or slow, a line
    on stderr says at once that events are lost; they are counted, and training never stops. If the
    process is killed, the file lacks the events that were not written yet.
    `keep="10m"` or `keep="500steps"` bounds the size of the file in long runs: it has the events
    of the last 10 to 20 minutes (500 to 1000 steps) and of the steps around the peaks; the others
    are dropped, and their effect on the memory is kept.
    Raises OSError if the file cannot be created, or if it exists and `overwrite` is not set.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        max_waiting_events: int = 512 * 1024,
        max_file_bytes: int = 0,
        keep: str | None = None,
        facts: Mapping[str, str] | None = None,
    ) -> None:
        self.path = os.fspath(path)
        self._has_warned = False
        keep_ns, keep_steps = parse_keep(keep) if keep is not None else (0, 0)
        all_facts = add_versions(facts)
        if keep is not None:
            all_facts["keep"] = keep
        self._native = _C.Recorder(
            self.path,
            overwrite,
            max_waiting_events,
            max_file_bytes,
            keep_ns,
            keep_steps,
            all_facts,
        )
        _open_recorders.add(self)

    def attach(self, tracker: _C.MemTracker) -> None:
        """Records the events of a tracker. Raises ValueError if it records another one already."""
        tracker.record_to(self._native)

    @property
    def written_events(self) -> int:
        return self._native.health()[0]

    @property
    def lost_events(self) -> int:
        return self._native.health()[1]

    def flush(self) -> None:
        """Waits until all events so far are in the file."""
        self._native.flush()
        self._warn_of_loss()

    def set_fact(self, key: str, value: str) -> None:
        """Adds a fact of the run to the file, before it is closed."""
        self._native.set_fact(key, value)

    def close(self) -> None:
        """Completes the file. Later events are not recorded."""
        self._native.close()
        self._warn_of_loss()

    def _warn_of_loss(self) -> None:
        written, lost, reason, advice = self._native.health()
        if lost and not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"{self.path} lacks {lost:,} of {written + lost:,} events ({reason}); {advice}",
                stacklevel=3,
            )


_open_recorders: weakref.WeakSet[Recorder] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for recorder in list(_open_recorders):
        recorder.close()
