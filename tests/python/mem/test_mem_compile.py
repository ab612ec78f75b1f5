# SPDX-License-Identifier: BSD-3-Clause
"""A compiled model is compiled once, tracked or not; what it shows has its labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tidegauge import MemTracker
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from tracked import now, parameter_bytes, split

LOSS = 4


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
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


Compile = Callable[[nn.Module, Any], Callable[..., Any]]


def as_module(model: nn.Module, backend: Any) -> Callable[..., Any]:
    return torch.compile(model, backend=backend, fullgraph=True)


def in_place(model: nn.Module, backend: Any) -> Callable[..., Any]:
    model.compile(backend=backend, fullgraph=True)
    return model


def as_function(model: nn.Module, backend: Any) -> Callable[..., Any]:
    return torch.compile(lambda x: model(x), backend=backend, fullgraph=True)


KINDS = pytest.mark.parametrize("compiled", [as_module, in_place, as_function])
BACKENDS = pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])


def graph_breaks() -> int:
    return sum(torch._dynamo.utils.counters["graph_break"].values())


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


def gradients_and_loss(model: nn.Module) -> dict[str, int]:
    weights = parameter_bytes(model)
    return split(Parameter=weights, Gradient=weights, Activation=LOSS)


def test_operators_of_the_graph_are_those_without_a_tracker() -> None:
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


def test_what_comes_after_compiled_code_is_seen_also_if_that_raised() -> None:
    run = torch.compile(nn.Linear(4, 4), backend="eager")
    with MemTracker() as tracker:
        with pytest.raises(Exception, match=r"same reduction dim|cannot be multiplied"):
            run(torch.ones(2, 5))
        before = now(tracker)["Total"]
        x = torch.ones(256)
        assert now(tracker)["Total"] == before + x.nbytes


def test_fakes_of_the_compiler_are_not_counted() -> None:
    """The first call compiles, and keeps two states of the random numbers meanwhile: real ones."""
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
    for _ in range(2):
        with MemTracker():
            model(x).sum().backward()
            step()
        model(x).sum().backward()
        step()
    # One state with our step hooks and one without, however often they come and go.
    assert counter.frame_count <= 2 * frames


def test_guard_of_torch_is_as_before_once_nobody_tracks() -> None:
    original = torch._C._ForceDispatchKeyGuard
    with MemTracker():
        assert torch._C._ForceDispatchKeyGuard is not original
    assert torch._C._ForceDispatchKeyGuard is original
