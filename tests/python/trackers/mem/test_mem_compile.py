# SPDX-License-Identifier: BSD-3-Clause
"""Tracking does not recompile a model, and its visible tensors are labelled."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from compiling import KINDS, Compile, as_module, graph_breaks, in_place, reset_compiler
from tidegauge import MemTracker
from tidegauge.report import read_summary
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch._subclasses.fake_tensor import FakeTensorMode
from torch_version import NO_COMPILE_IN_FAKE_MODE
from tracked import now, parameter_bytes, split

LOSS = 4


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    reset_compiler()
    yield
    torch._dynamo.reset()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Linear(16, 32)
        self.narrow = nn.Linear(32, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.narrow(torch.relu(self.wide(x)))


def model_and_input() -> tuple[nn.Module, torch.Tensor]:
    return Net(), torch.ones(4, 16)


BACKENDS = pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])


@KINDS
@BACKENDS
def test_compiled_before_entering_is_not_compiled_again(compiled: Compile, backend: str) -> None:
    model, x = model_and_input()
    counter = CompileCounterWithBackend(backend)
    run = compiled(model, counter)
    run(x).sum().backward()
    for _ in range(3):
        with MemTracker() as tracker:
            loss = run(x).sum()
            loss.backward()
            assert now(tracker) == gradients_and_loss(model)
        run(x).sum().backward()
    assert (counter.frame_count, graph_breaks()) == (1, 0)


@KINDS
@BACKENDS
def test_compiled_inside_is_one_graph_and_not_compiled_again(
    compiled: Compile, backend: str
) -> None:
    model, x = model_and_input()
    counter = CompileCounterWithBackend(backend)
    run = compiled(model, counter)
    for _ in range(3):
        with MemTracker() as tracker:
            loss = run(x).sum()
            loss.backward()
            assert now(tracker) == gradients_and_loss(model)
        run(x).sum().backward()
        model.zero_grad()
    assert (counter.frame_count, graph_breaks()) == (1, 0)


def gradients_and_loss(model: nn.Module, **more: int) -> dict[str, int]:
    weights = parameter_bytes(model)
    return split(Parameter=weights, Gradient=weights, Activation=LOSS, **more)


def test_compiled_graph_has_the_same_operators_as_without_a_tracker() -> None:
    def operators(is_tracked: bool) -> int:
        torch._dynamo.reset()
        counter = CompileCounterWithBackend("eager")
        model, x = model_and_input()
        run = torch.compile(model, backend=counter)
        if is_tracked:
            with MemTracker():
                run(x)
        else:
            run(x)
        return counter.op_count

    assert operators(True) == operators(False) > 0


@pytest.mark.parametrize("compiled", [as_module, in_place])
def test_output_of_a_compiled_module_is_an_activation(compiled: Compile) -> None:
    model, x = model_and_input()
    run = compiled(model, "eager")
    with MemTracker() as tracker:
        y = run(x)
        assert now(tracker) == split(Parameter=parameter_bytes(model), Activation=y.nbytes)
        del y
        assert now(tracker) == split(Parameter=parameter_bytes(model))


def test_ops_after_compiled_code_are_seen_even_if_it_raised() -> None:
    run = torch.compile(nn.Linear(4, 4), backend="eager")
    with MemTracker() as tracker:
        with pytest.raises(Exception, match=r"same reduction dim|cannot be multiplied"):
            run(torch.ones(2, 5))
        before = now(tracker)["Total"]
        x = torch.ones(256)
        assert now(tracker)["Total"] == before + x.nbytes


def test_fake_tensors_of_the_compiler_are_not_counted() -> None:
    """The first call compiles, and meanwhile keeps two real random states."""
    model, x = model_and_input()
    run = torch.compile(model, backend="aot_eager")
    with MemTracker() as tracker:
        tracker.track_external(model, x)
        with torch.no_grad():
            y = run(x)
        parameters = parameter_bytes(model)
        assert now(tracker) == split(Parameter=parameters, Activation=y.nbytes, Other=x.nbytes)
        peak = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]
        assert peak == parameters + x.nbytes + 2 * torch.get_rng_state().nbytes


def test_compiled_optimizer_is_not_compiled_again() -> None:
    model, x = model_and_input()
    optimizer = torch.optim.SGD(model.parameters(), lr=torch.tensor(0.1))
    counter = CompileCounterWithBackend("eager")
    step = torch.compile(optimizer.step, backend=counter)
    model(x).sum().backward()
    step()
    frames = counter.frame_count
    assert frames > 0
    for _ in range(2):
        with MemTracker():
            model(x).sum().backward()
            step()
        model(x).sum().backward()
        step()
    assert counter.frame_count == frames


def held(tracker: MemTracker) -> tuple[dict[str, int], dict[str, int]]:
    """Bytes of all devices, now and at the peak."""
    return tuple(
        {str(device): sizes["Total"] for device, sizes in snapshot.items()}
        for snapshot in (tracker.get_tracker_snapshot(), tracker.get_tracker_snapshot("peak"))
    )


@pytest.mark.parametrize("allocator", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiling_does_not_change_the_bytes_of_a_step(backend: str, allocator: bool) -> None:
    """On any device. The compiler's real random states are below the peak here."""
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256))
    x = torch.ones(64, 256)
    counter = CompileCounterWithBackend(backend)
    run = torch.compile(model, backend=counter)

    def step() -> tuple[dict[str, int], dict[str, int]]:
        model.zero_grad()
        tracker = MemTracker(allocator=allocator)
        tracker.track_external(model, x)
        with tracker:
            loss = run(x).sum()
            loss.backward()
            return held(tracker)

    cold = step()
    assert counter.frame_count == 1
    assert step() == cold
    assert counter.frame_count == 1
    weights = parameter_bytes(model)
    assert cold[0] == {"cpu": 2 * weights + x.nbytes + LOSS}
    assert set(cold[1]) == {"cpu"}
    assert cold[1]["cpu"] > cold[0]["cpu"]


class Broken(Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.wide(x))
        torch._dynamo.graph_break()
        return self.narrow(y)


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 16)
        self.net = Net()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(self.first(x))


def broken(backend: Any) -> tuple[nn.Module, Callable[..., Any], int]:
    model = Broken()
    return model, torch.compile(model, backend=backend), 2


def part(backend: Any) -> tuple[nn.Module, Callable[..., Any], int]:
    model = Outer()
    model.net.compile(backend=backend, fullgraph=True)
    return model, model, 1


def whole(backend: Any) -> tuple[nn.Module, Callable[..., Any], int]:
    model = Net()
    return model, torch.compile(model, backend=backend, fullgraph=True), 1


@pytest.mark.parametrize("in_another_thread", [False, True], ids=["here", "thread"])
@pytest.mark.parametrize("allocator", [False, True], ids=["plain", "allocator"])
@pytest.mark.parametrize("is_cold", [False, True], ids=["warm", "cold"])
@pytest.mark.parametrize("make", [broken, part, whole])
def test_entering_and_leaving_do_not_recompile(
    make: Callable[..., Any], is_cold: bool, allocator: bool, in_another_thread: bool
) -> None:
    counter = CompileCounterWithBackend("aot_eager")
    model, run, frames = make(counter)
    x = torch.ones(4, 16)

    def step() -> None:
        run(x).sum().backward()

    def step_in_thread() -> None:
        thread = threading.Thread(target=step)
        thread.start()
        thread.join()

    if not is_cold:
        step()
    for _ in range(2):
        model.zero_grad()
        tracker = MemTracker(allocator=allocator)
        tracker.track_external(model)
        with tracker:
            step_in_thread() if in_another_thread else step()
            weights = parameter_bytes(model)
            assert now(tracker) == split(Parameter=weights, Gradient=weights)
            assert set(held(tracker)[1]) == {"cpu"}
        step()
        assert counter.frame_count == frames
    assert graph_breaks() == frames - 1


@NO_COMPILE_IN_FAKE_MODE.skips
def test_model_compiled_within_the_fake_mode_of_the_entry() -> None:
    def step(compiles: bool) -> tuple[Any, Any]:
        with FakeTensorMode():
            model, x = model_and_input()
            counter = CompileCounterWithBackend("aot_eager")
            run = torch.compile(model, backend=counter) if compiles else model
            for _ in range(2):  # the first time, the compiler keeps random states
                model.zero_grad()
                tracker = MemTracker()
                tracker.track_external(model, x)
                with tracker:
                    loss = run(x).sum()
                    loss.backward()
                    assert now(tracker) == gradients_and_loss(model, Other=x.nbytes)
            assert counter.frame_count == int(compiles)
            return held(tracker)

    assert step(True) == step(False)


@pytest.mark.parametrize("strict", [False, True])
def test_fake_tensors_of_an_export_are_not_counted(strict: bool) -> None:
    model, x = model_and_input()
    with MemTracker() as tracker:
        tracker.track_external(model, x)
        exported = torch.export.export(model, (x,), strict=strict)
        current, peak = held(tracker)
        assert current == {"cpu": parameter_bytes(model) + x.nbytes}
        assert set(peak) == {"cpu"}
        y = exported.module()(x)
        assert now(tracker)["Parameter"] == parameter_bytes(model)
        del y


def test_fake_of_a_real_tensor_counts_on_its_device() -> None:
    """The first op that uses it observes it; the op did not make it."""
    x = torch.ones(4, 16)
    with FakeTensorMode() as mode, MemTracker() as tracker:
        fake = mode.from_tensor(x)
        assert held(tracker) == ({}, {})
        kept = [fake + 1, fake.view(16, 4)]
        assert now(tracker) == split(Activation=x.nbytes, Other=x.nbytes)
        assert held(tracker)[0] == {"cpu": 2 * x.nbytes}
        del kept


def test_force_dispatch_key_guard_is_restored_after_the_last_exit() -> None:
    original = torch._C._ForceDispatchKeyGuard
    with MemTracker():
        assert torch._C._ForceDispatchKeyGuard is not original
    assert torch._C._ForceDispatchKeyGuard is original


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("foreach", [False, True])
def test_states_of_a_compiled_optimizer_are_its_states(backend: str, foreach: bool) -> None:
    model, x = model_and_input()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1, foreach=foreach)
    step = torch.compile(optimizer.step, backend=backend)
    tracker = MemTracker()
    tracker.track_external(model, optimizer, x)
    with tracker:
        for _ in range(2):
            model(x).sum().backward()
            step()
            states = sum(state.nbytes for of in optimizer.state.values() for state in of.values())
            held = now(tracker)
            assert held["Optstate"] == states
            assert "Buffer" not in held


@pytest.mark.parametrize("is_inside_a_function", [False, True])
def test_steps_of_a_compiled_optimizer_are_counted(
    is_inside_a_function: bool, tmp_path: Path
) -> None:
    model, x = model_and_input()
    optimizer = torch.optim.SGD(model.parameters(), lr=torch.tensor(0.1), momentum=0.9)

    def update() -> None:
        optimizer.step()

    step = torch.compile(update if is_inside_a_function else optimizer.step, backend="eager")
    path = tmp_path / "run.tide"
    tracker = MemTracker(record=path)
    tracker.track_external(model, optimizer, x)
    with tracker:
        for _ in range(3):
            model(x).sum().backward()
            step()
            optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()  # not compiled
    summary = read_summary(path)
    assert summary.step_count == 4
    assert summary.optimizer_step_count == 4


@pytest.mark.parametrize(("compiled", "root"), [(as_module, "Net (compiled)"), (in_place, "Net")])
def test_modules_of_a_compiled_model_have_names(
    compiled: Compile, root: str, tmp_path: Path
) -> None:
    model, x = model_and_input()
    run = compiled(model, "eager")
    path = tmp_path / "run.tide"
    tracker = MemTracker(record=path)
    tracker.track_external(model, x)
    with tracker:
        run(x).sum().backward()
    (peak,) = read_summary(path).peaks
    owners = {group.module for group in peak.tensors if group.category == "Parameter"}
    assert owners == {f"{root}.wide", f"{root}.narrow"}
