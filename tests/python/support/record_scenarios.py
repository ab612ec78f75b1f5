# SPDX-License-Identifier: BSD-3-Clause
"""record_scenarios.py FILE [--shared]: writes the events and figures of every scenario to FILE.

With --shared, the dispatch key Fake has a fallback of its own, as if a newer torch had claimed it.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

if "--shared" in sys.argv:
    library = torch.library.Library("_", "IMPL")

    def refuse(op: Any, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError(f"the fallback of another library was called for {op}")

    library.fallback(refuse, "Fake")  # type: ignore[no-untyped-call]

import runs
from event_stream import describe, read_events
from scenarios import SCENARIOS
from tidegauge import MemTracker, simulate
from tidegauge.trackers.recorder import Recorder


def record(name: str, path: Path) -> list[str]:
    recorder = Recorder(path)
    tracker = MemTracker(record=recorder)
    runs.make_tracker = lambda kind: tracker

    def scenario(run: runs.Run) -> object:
        kept = SCENARIOS[name](run)
        tracker._native.current()
        recorder.flush()
        return kept

    outcome = runs.run_scenario("ours", scenario)
    recorder.close()  # a model that is still alive would keep its file open
    assert outcome.error is None, (name, outcome.error)
    return [describe(event) for event in read_events(path)]


def read_figures(name: str) -> list[str]:
    """The figures of a tracker without a recorder: only such a tracker can be a sole listener."""
    runs.make_tracker = lambda kind: MemTracker()
    outcome = runs.run_scenario("ours", SCENARIOS[name])
    assert outcome.error is None, (name, outcome.error)
    return [f"{key} = {value}" for key, value in outcome.flat().items()]


def record_simulation(path: Path) -> list[str]:
    with simulate(), MemTracker(record=path):
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8))
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(2):
            model(torch.randn(4, 8)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    return [describe(event) for event in read_events(path)]


torch.set_num_threads(1)
with tempfile.TemporaryDirectory() as folder:
    result = {}
    for name in SCENARIOS:
        result[name] = record(name, Path(folder, f"{name}.tide"))
        result[f"{name}: figures"] = read_figures(name)
    result["simulate"] = record_simulation(Path(folder, "simulate.tide"))
Path(sys.argv[1]).write_text(json.dumps(result))
