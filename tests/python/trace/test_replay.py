# SPDX-License-Identifier: BSD-3-Clause
"""In every scenario, a replayed recording equals the live tracker, bit by bit."""

from __future__ import annotations

import gc
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from runs import Run, run_scenario
from scenarios_models import MODELS
from scenarios_programs import PROGRAMS
from scenarios_tensors import TENSORS
from scenarios_training import TRAINING
from tidegauge import MemTracker, Recorder, _core
from torch._subclasses.fake_tensor import FakeTensorMode
from traces import name_devices

SCENARIOS = MODELS | TRAINING | TENSORS | PROGRAMS


def modules_of(live: Any) -> list[tuple[str, Any]]:
    return [(name, live.module_stats(module)) for module, name in live.modules()]


def replayed_modules_of(reader: _core.Reader, ledger: _core.Ledger) -> list[tuple[str, Any]]:
    names = {module: name for module, name, _ in reader.modules()}
    return [(names[module], ledger.module_stats(module)) for module in ledger.modules()]


def fine(snapshot: Any) -> dict[str, dict[str, int]]:
    return {device: split for device, _, _, _, split in snapshot}


def assert_replay_equals(live: Any, path: Path) -> None:
    current, peak, modules = map(name_devices, (live.current(), live.peak(), modules_of(live)))
    splits = name_devices([live.splits(at_peak) for at_peak in (False, True)])
    anomalies = live.anomalies()
    reader = _core.Reader(str(path))
    ledger = reader.replay()
    assert ledger.current() == current
    assert ledger.peak() == peak
    assert [fine(ledger.fine_current()), fine(ledger.fine_peak())] == splits
    assert replayed_modules_of(reader, ledger) == modules
    assert ledger.anomalies() == anomalies
    assert reader.gaps() == []


@pytest.mark.parametrize("allocator", [False, True], ids=["tensors", "allocator"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_replay_equals_the_live_tracker(
    name: str, allocator: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.tide"
    recorder = Recorder(path)
    tracker = MemTracker(record=recorder, allocator=allocator)
    monkeypatch.setattr("runs.make_tracker", lambda kind: tracker)
    compared = []

    def scenario(run: Run) -> None:
        kept = SCENARIOS[name](run)
        tracker._native.current()  # labels replaced tensors, which adds events
        recorder.flush()
        assert_replay_equals(tracker._native, path)
        compared.append(kept)

    result = run_scenario("ours", scenario)
    assert result.error is None
    assert len(compared) == 1


@pytest.mark.parametrize("allocator", [False, True], ids=["tensors", "allocator"])
def test_storages_have_their_tensor_op_and_module(allocator: bool, tmp_path: Path) -> None:
    path = tmp_path / "run.tide"
    model = torch.nn.Sequential(torch.nn.Linear(4, 8))
    x = torch.zeros(2, 4)
    tracker = MemTracker(record=path, allocator=allocator)
    tracker.track_external(model, x)
    with tracker:
        y = model(x)
    reader = _core.Reader(str(path))
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


def test_parameter_made_inside_has_its_shape_and_op(tmp_path: Path) -> None:
    path = tmp_path / "run.tide"
    with MemTracker(record=path, allocator=True):
        model = torch.nn.Linear(4, 8)
        model(torch.zeros(2, 4))
    reader = _core.Reader(str(path))
    alive = reader.storages_alive_at(reader.event_count(), 100)
    parameters = {
        (storage["op"], storage["shape"]) for storage in alive if storage["category"] == "Parameter"
    }
    assert parameters == {
        ("aten::empty.memory_format", "[8, 4]"),
        ("aten::empty.memory_format", "[8]"),
    }


def test_fake_run_replays(tmp_path: Path) -> None:
    path = tmp_path / "run.tide"
    with FakeTensorMode():
        model = torch.nn.Linear(4, 8)
        tracker = MemTracker(record=path)
        tracker.track_external(model)
        with tracker:
            model(torch.zeros(2, 4)).sum().backward()
    assert_replay_equals(tracker._native, path)
    reader = _core.Reader(str(path))
    alive = reader.storages_alive_at(reader.event_count(), 100)
    assert {(s["category"], s["shape"], s["device"]) for s in alive} == {
        ("Parameter", "[8, 4]", "cpu"),
        ("Parameter", "[8]", "cpu"),
        ("Gradient", "[8, 4]", "cpu"),
        ("Gradient", "[1, 8]", "cpu"),  # of the bias, in the shape of the sum
    }


@pytest.mark.parametrize("allocator", [False, True], ids=["tensors", "allocator"])
def test_threads_record_to_one_file(allocator: bool, tmp_path: Path) -> None:
    path = tmp_path / "run.tide"
    tracker = MemTracker(record=path, allocator=allocator)

    def train() -> None:
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(5):
            optimizer.zero_grad()
            model(torch.ones(2, 8)).sum().backward()
            optimizer.step()

    with tracker:
        threads = [threading.Thread(target=train) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        del threads, thread
    gc.collect()
    tracker._native.current()
    assert tracker._recorder is not None
    tracker._recorder.flush()
    assert_replay_equals(tracker._native, path)


def steps_of(path: Path) -> list[int]:
    """The peak of each step."""
    return [
        sum(sum(split.values()) for *_, split in bytes_)
        for _, bytes_ in _core.Reader(str(path)).replay().step_peaks()
    ]


def test_step_begins_with_the_model_and_contains_several_batches(tmp_path: Path) -> None:
    path = tmp_path / "run.tide"
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), momentum=0.9)
    batches = [torch.ones(size, 4) for size in (1, 100, 1, 10, 1, 1)]
    tracker = MemTracker(record=path)
    tracker.track_external(model, optimizer, batches)
    with tracker:
        for x in batches:
            y = model(x)
            if len(x) == 1:
                y.sum().backward()
                optimizer.step()
                optimizer.zero_grad()
            del y
    weights = (4 * 4 + 4) * 4
    before = weights + sum(x.nbytes for x in batches)
    gradients = momentum = weights
    row = 16
    loss = 4
    assert [peak - before for peak in steps_of(path)] == [
        gradients + momentum + row,
        momentum + 100 * row,
        momentum + 10 * row,
        gradients + momentum + row + 2 * loss,  # loss and its gradient
    ]


def test_step_of_a_run_without_an_optimizer_is_an_iteration(tmp_path: Path) -> None:
    path = tmp_path / "run.tide"
    model, loss = torch.nn.Linear(4, 4), torch.nn.MSELoss()
    with MemTracker(record=path):
        for _ in range(3):
            loss(model(torch.ones(2, 4)), torch.ones(2, 4)).backward()
    assert len(steps_of(path)) == 3


def test_module_that_becomes_a_submodule_gets_its_longer_name(tmp_path: Path) -> None:
    path = tmp_path / "run.tide"
    inner = torch.nn.Linear(4, 4)
    outer = torch.nn.Sequential(inner)
    with MemTracker(record=path):
        inner(torch.zeros(1, 4))
        outer(torch.zeros(1, 4))
    assert [name for _, name, _ in _core.Reader(str(path)).modules()] == [
        "Sequential.0",
        "Sequential",
    ]


def test_file_is_complete_when_the_recorder_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "run.tide"
    with MemTracker(record=path) as tracker:
        torch.zeros(8)
    assert not _core.Reader(str(path)).is_complete()
    del tracker
    gc.collect()
    assert _core.Reader(str(path)).is_complete()
