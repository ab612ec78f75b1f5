# SPDX-License-Identifier: BSD-3-Clause
"""Every scenario with the fast paths (src/capture/fast) and without them: same events."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from event_stream import Event, describe, read_events
from runs import Record, Run, run_scenario
from scenarios import SCENARIOS
from tidegauge import _C, MemTracker
from tidegauge.trackers.recorder import Recorder

pytestmark = pytest.mark.skipif(
    not _C.set_fast_paths(True), reason="compiled with TIDEGAUGE_FAST_PATHS=OFF"
)


@contextmanager
def general_path_alone() -> Iterator[None]:
    _C.set_fast_paths(False)
    try:
        yield
    finally:
        _C.set_fast_paths(True)


def record_events(name: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    recorder = Recorder(path)
    tracker = MemTracker(record=recorder)
    monkeypatch.setattr("runs.make_tracker", lambda kind: tracker)

    def scenario(run: Run) -> object:
        kept = SCENARIOS[name](run)
        tracker._native.current()
        recorder.flush()
        return kept

    assert run_scenario("ours", scenario).error is None
    return read_events(path)


@pytest.mark.parametrize("name", SCENARIOS)
def test_event_streams_are_equal(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_events(name, tmp_path / "warm_up.tide", monkeypatch)
    fast = record_events(name, tmp_path / "fast.tide", monkeypatch)
    with general_path_alone():
        general = record_events(name, tmp_path / "general.tide", monkeypatch)
    assert [describe(event) for event in fast] == [describe(event) for event in general]


@pytest.mark.parametrize("name", SCENARIOS)
def test_figures_of_a_sole_tracker_are_equal(name: str) -> None:
    def run() -> Record:
        return run_scenario("ours", SCENARIOS[name])

    fast = run()
    with general_path_alone():
        general = run()
    assert fast.flat() == general.flat()
    assert (fast.anomalies, general.anomalies) == ((0, ""), (0, ""))
