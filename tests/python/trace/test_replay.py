# SPDX-License-Identifier: BSD-3-Clause
"""What was recorded and is replayed equals the live tracker, bit by bit, in every scenario."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
import torch
from runs import Run, run_scenario
from scenarios_models import MODELS
from scenarios_programs import PROGRAMS
from scenarios_tensors import TENSORS
from scenarios_training import TRAINING
from tidegauge import _C, MemTracker, Recorder

SCENARIOS = MODELS | TRAINING | TENSORS | PROGRAMS


def modules_of(live: Any) -> list[tuple[str, Any]]:
    return [(name, live.module_stats(module)) for module, name in live.modules()]


def replayed_modules_of(reader: _C.Reader, ledger: _C.Ledger) -> list[tuple[str, Any]]:
    names = {module: name for module, name, _ in reader.modules()}
    return [(names[module], ledger.module_stats(module)) for module in ledger.modules()]


def assert_replay_equals(live: Any, path: Path) -> None:
    current, peak, modules = live.current(), live.peak(), modules_of(live)
    anomalies = live.anomalies()
    reader = _C.Reader(str(path))
    ledger = reader.replay()
    assert ledger.current() == current
    assert ledger.peak() == peak
    assert replayed_modules_of(reader, ledger) == modules
    assert ledger.anomalies() == anomalies
    assert reader.gaps() == []


@pytest.mark.parametrize("name", SCENARIOS)
def test_replay_equals_the_live_tracker(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.tide"
    recorder = Recorder(path)
    tracker = MemTracker(record=recorder)
    monkeypatch.setattr("runs.make_tracker", lambda kind: tracker)
    compared = []

    def scenario(run: Run) -> None:
        kept = SCENARIOS[name](run)
        tracker._core.current()  # finds what was exchanged in secret, an event or more
        recorder.flush()
        assert_replay_equals(tracker._core, path)
        compared.append(kept)

    result = run_scenario("ours", scenario)
    assert result.error is None
    assert len(compared) == 1


def test_storages_know_their_tensor_op_and_module(tmp_path: Path) -> None:
    path = tmp_path / "run.tide"
    model = torch.nn.Sequential(torch.nn.Linear(4, 8))
    x = torch.zeros(2, 4)
    tracker = MemTracker(record=path)
    tracker.track_external(model, x)
    with tracker:
        y = model(x)
    reader = _C.Reader(str(path))
    alive = reader.storages_alive_at(reader.event_count(), 100)
    modules = {module: (name, cls) for module, name, cls in reader.modules()}
    (output,) = [storage for storage in alive if storage["category"] == "Activation"]
    assert (output["shape"], output["dtype"]) == ("[2, 8]", "float32")
    assert output["op"] == "aten::addmm"
    assert modules[output["module"]] == ("Sequential.0", "torch.nn.modules.linear.Linear")
    shapes = {(s["category"], s["shape"]) for s in alive if s is not output}
    assert shapes == {("Parameter", "[8, 4]"), ("Parameter", "[8]"), ("Other", "[2, 4]")}
    assert reader.run_facts()["torch_version"] == torch.__version__
    del y


def test_module_that_becomes_a_part_later_has_its_longer_name(tmp_path: Path) -> None:
    path = tmp_path / "run.tide"
    inner = torch.nn.Linear(4, 4)
    outer = torch.nn.Sequential(inner)
    with MemTracker(record=path):
        inner(torch.zeros(1, 4))
        outer(torch.zeros(1, 4))
    assert [name for _, name, _ in _C.Reader(str(path)).modules()] == [
        "Sequential.0",
        "Sequential",
    ]


def test_file_is_complete_when_the_recorder_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "run.tide"
    with MemTracker(record=path) as tracker:
        torch.zeros(8)
    assert not _C.Reader(str(path)).is_complete()
    del tracker
    gc.collect()
    assert _C.Reader(str(path)).is_complete()
