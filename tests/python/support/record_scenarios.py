# SPDX-License-Identifier: BSD-3-Clause
"""record_scenarios.py FILE [--shared | --kernels]: writes the events and figures of every scenario.

As if a newer torch had claimed the dispatch key Fake: with --shared, the key has a fallback of its
own; with --kernels, single ops have kernels for it.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

if len(sys.argv) > 2:
    is_shared = sys.argv[2] == "--shared"
    library = torch.library.Library("_" if is_shared else "aten", "IMPL")

    def refuse(op: Any, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError(f"the kernel of another library was called for {op}")

    if is_shared:
        library.fallback(refuse, "Fake")  # type: ignore[no-untyped-call]
    else:
        for op in ("relu", "addmm", "view", "add_.Tensor", "native_dropout", "_foreach_add.Scalar"):
            library.impl(op, refuse, "Fake")  # type: ignore[no-untyped-call]

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


def record_simulation(path: Path, device: str) -> list[str]:
    with simulate(device), torch.device(device), MemTracker(record=path):
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
    for device in ("cpu", "cuda"):
        path = Path(folder, f"simulate_{device}.tide")
        result[f"simulate {device}"] = record_simulation(path, device)
Path(sys.argv[1]).write_text(json.dumps(result))
