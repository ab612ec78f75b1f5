# SPDX-License-Identifier: BSD-3-Clause
"""Whatever the objects of a program do when a hook reads them, the training does not see it.

Each program runs once without and once with a tracker. It must compute the same numbers and raise
the same exceptions; what a tracker could not read is counted.
"""

from __future__ import annotations

import copy
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tidegauge import FSDPMemTracker, MemTracker, ModTracker
from tidegauge.report import read_summary
from tidegauge.report.text import describe_health
from tidegauge.trackers.script_tracker import ScriptTracker
from torch import nn
from torch.utils import _pytree as pytree
from torch_version import UNWRITTEN_GATHER

SURROGATE = "lone \udc80 surrogate"


class AngryError(Exception):
    """An exception that cannot even be printed."""

    def __str__(self) -> str:
        raise self

    __repr__ = __str__


class Liar:
    """An object that raises for its class and for everything else."""

    @property
    def __class__(self) -> Any:  # type: ignore[override]
        raise AngryError

    def __getattr__(self, name: str) -> Any:
        raise AngryError

    def __repr__(self) -> str:
        raise AngryError

    def __eq__(self, other: object) -> bool:
        raise AngryError

    __hash__ = None  # type: ignore[assignment]


class Unflattenable:
    """Registered with pytree, and cannot be flattened."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


def refuse(*_: Any) -> Any:
    raise AngryError


pytree.register_pytree_node(Unflattenable, refuse, refuse)


class Nameless(type):
    @property
    def __module__(cls) -> str:  # type: ignore[override]
        raise AngryError


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, *_: Any, **__: Any) -> Any:
        return self.fc(x)


def plain_step(model: nn.Module, *args: Any, **kwargs: Any) -> list[Any]:
    optimizer = torch.optim.AdamW(model.parameters())
    out = model(torch.ones(2, 4), *args, **kwargs)
    out.sum().backward()
    optimizer.step()
    return [out.detach(), *(p.detach().clone() for p in model.parameters())]


def surrogates_in_names() -> Any:
    model = Net()
    setattr(model, SURROGATE, nn.Linear(4, 4))
    model.register_parameter(SURROGATE + "p", nn.Parameter(torch.ones(3)))
    model.register_buffer(SURROGATE + "b", torch.ones(3))
    type(model).__qualname__ = SURROGATE
    try:
        return plain_step(nn.Sequential(model, getattr(model, SURROGATE)))
    finally:
        type(model).__qualname__ = "Net"


def class_without_a_module() -> Any:
    class Odd(Net, metaclass=Nameless):
        pass

    class Number(Net):
        __module__ = 5  # type: ignore[assignment]

    return plain_step(nn.Sequential(Odd(), Number()))


def hostile_arguments() -> Any:
    liars = [Liar(), {"a": Liar()}, (Unflattenable(torch.ones(2)),), 10**5000]
    return plain_step(Net(), *liars, liar=Liar(), **{SURROGATE: Liar()})


def hostile_outputs() -> Any:
    class Returns(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return x * 2, Liar(), Unflattenable(x), [[Liar()]]

    return Returns()(torch.ones(3))[0]


def numbers_among_the_modules() -> Any:
    model = Net()
    model._modules["five"] = 5  # type: ignore[assignment]
    model._parameters["six"] = 6  # type: ignore[assignment]
    model._buffers["seven"] = Liar()  # type: ignore[assignment]
    model._modules[7] = nn.Identity()  # type: ignore[index]
    return model(torch.ones(2, 4)).detach()


def properties_that_raise() -> Any:
    class Raises(Net):
        @property
        def _checkpoint_wrapped_module(self) -> Any:
            raise AngryError

        def __getattr__(self, name: str) -> Any:
            if name in ("weight", "_fsdp_state"):
                raise AngryError
            return super().__getattr__(name)

        def __repr__(self) -> str:
            raise AngryError

        def __eq__(self, other: object) -> bool:
            raise AngryError

        __hash__ = nn.Module.__hash__

    return plain_step(Raises())


def wrapper_that_contains_itself() -> Any:
    class Endless(torch.Tensor):
        @staticmethod
        def __new__(cls, inner: torch.Tensor) -> Any:
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape)

        def __tensor_flatten__(self) -> Any:
            return ["itself"], None

        @property
        def itself(self) -> Any:
            return self

        @classmethod
        def __torch_dispatch__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            raise AngryError

    class Raises(Endless):
        def __tensor_flatten__(self) -> Any:
            raise AngryError

    net = Net()
    return net(torch.ones(2, 4), Endless(torch.ones(3)), Raises(torch.ones(3))).detach()


def optimizer_with_a_hostile_state() -> Any:
    class State(dict):  # type: ignore[type-arg]
        def items(self) -> Any:
            raise AngryError

    class Odd(torch.optim.SGD):
        pass

    Odd.__module__ = None  # type: ignore[assignment]
    Odd.__qualname__ = SURROGATE
    model = Net()
    optimizer = Odd(model.parameters(), lr=0.1)
    optimizer.state = State()  # type: ignore[assignment]
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    return [p.detach().clone() for p in model.parameters()]


def failing_optimizer_step() -> Any:
    class Fails(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            raise AngryError

    model = Net()
    with pytest.raises(AngryError):
        Fails(model.parameters()).step()
    return plain_step(model)


def gradients_of_anything() -> Any:
    x = torch.ones(3, requires_grad=True)
    (grad,) = torch.autograd.grad((x * x).sum(), x)
    return grad


def resize_that_fails() -> Any:
    storage = torch.ones(3).untyped_storage()
    with pytest.raises((RuntimeError, TypeError)):
        storage.resize_(Liar())
    storage.resize_(0)
    return storage.nbytes()


def copies_of_hostile_modules() -> Any:
    model = Net()
    model._buffers[SURROGATE] = torch.ones(2)
    return plain_step(copy.deepcopy(model))


def checkpoint_of_hostile_modules() -> Any:
    model = Net()
    setattr(model, SURROGATE, nn.Linear(4, 4))
    x = torch.ones(2, 4, requires_grad=True)
    for reentrant in (False, True):
        torch.utils.checkpoint.checkpoint(model, x, use_reentrant=reentrant).sum().backward()
    return x.grad


def threads_that_end_badly() -> Any:
    results: list[Any] = []

    def run() -> None:
        results.append(plain_step(Net()))
        raise AngryError

    hook, threading.excepthook = threading.excepthook, lambda _: None
    try:
        thread = threading.Thread(target=run, name=SURROGATE)
        thread.start()
        thread.join()
    finally:
        threading.excepthook = hook
    return results


def stderr_that_cannot_be_written() -> Any:
    class Broken:
        def write(self, text: str) -> None:
            raise AngryError

    import sys

    stream, sys.stderr = sys.stderr, Broken()  # type: ignore[assignment]
    try:
        with pytest.raises(RuntimeError):
            torch.empty(1 << 60)
    finally:
        sys.stderr = stream
    return True


PROGRAMS: list[Callable[[], Any]] = [
    surrogates_in_names,
    class_without_a_module,
    hostile_arguments,
    hostile_outputs,
    numbers_among_the_modules,
    properties_that_raise,
    wrapper_that_contains_itself,
    optimizer_with_a_hostile_state,
    failing_optimizer_step,
    gradients_of_anything,
    resize_that_fails,
    copies_of_hostile_modules,
    checkpoint_of_hostile_modules,
    threads_that_end_badly,
    stderr_that_cannot_be_written,
]
COUNTED = {
    "hostile_arguments",
    "hostile_outputs",
    "wrapper_that_contains_itself",
    "optimizer_with_a_hostile_state",
    "stderr_that_cannot_be_written",
}


def run(program: Callable[[], Any]) -> Any:
    torch.manual_seed(0)
    return program()


def assert_equal(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize("stacks", ["none", "python"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.__name__)
def test_training_does_not_see_our_failures(
    program: Callable[[], Any], stacks: str, tmp_path: Path
) -> None:
    expected = run(program)
    path = tmp_path / "run.tide"
    tracker = MemTracker(record=path, stacks=stacks)
    with tracker, ModTracker():
        found = run(program)
    assert_equal(found, expected)
    tracker._recorder.close()  # type: ignore[union-attr]
    count, first = tracker._native.failures()
    assert (count > 0) == (program.__name__ in COUNTED), first
    assert len(first) < 400
    summary = read_summary(path)
    assert summary.health.hook_failure_count == count
    assert summary.health.first_hook_failure == first
    assert any(first in line for line in describe_health(summary)) == (count > 0)


@pytest.mark.parametrize("program", PROGRAMS[:4], ids=lambda each: each.__name__)
def test_program_is_the_same_with_a_tracker_of_modules_alone(program: Callable[[], Any]) -> None:
    expected = run(program)
    with ModTracker():
        found = run(program)
    assert_equal(found, expected)


class Recursive(nn.Module):
    def forward(self, x: torch.Tensor, depth: int = 3) -> Any:
        return self(x, depth - 1) + 1 if depth else x


def test_script_is_not_warned_of_recursion() -> None:
    """A script under `tidegauge run` did not ask for upstream's warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with ScriptTracker() as tracker:
            found = Recursive()(torch.ones(2))
    assert_equal(found, torch.full((2,), 4.0))
    assert tracker._native.failures() == (0, "")


def test_recursion_warning_of_the_drop_in_leaves_nothing_open() -> None:
    with MemTracker() as tracker:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(UserWarning, match="hierarchy tracking"):
                Recursive()(torch.ones(2))
        nn.Identity()(torch.ones(2))
    assert tracker._native.failures() == (0, "")
    assert tracker._native.anomalies() == (0, "")


def test_lone_surrogates_keep_names_apart() -> None:
    model = nn.Sequential()
    model.add_module("\udc80", nn.Identity())
    model.add_module("\udc81", nn.Identity())
    with ModTracker() as tracker:
        model(torch.ones(1))
    names = {tracker.get_known_fqn(child) for child in model.children()}
    assert names == {"Sequential.\\udc80", "Sequential.\\udc81"}


def test_interrupt_while_we_read_reaches_the_program() -> None:
    class Interrupts:
        pass

    def interrupt(_: Any) -> Any:
        raise KeyboardInterrupt

    pytree.register_pytree_node(Interrupts, interrupt, interrupt)
    tracker = MemTracker()

    def train() -> None:
        Net()(torch.ones(2, 4), Interrupts())
        for _ in range(10):
            pass

    with pytest.raises(KeyboardInterrupt), tracker:
        train()
    assert tracker._native.failures() == (0, "")


def test_sharded_program_does_not_see_our_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    import sharded
    from tidegauge._torch import compat_fsdp, fsdp_patches

    def step() -> Any:
        torch.manual_seed(0)
        with sharded.world(4):
            model = sharded.shard_all(sharded.Net())
            setattr(model, SURROGATE, nn.Identity())
            tracker = FSDPMemTracker(model)
            with tracker:
                model(torch.ones(8, sharded.WIDTH)).sum().backward()
        grads = [p.grad.to_local() for p in model.parameters() if p.grad is not None]
        if UNWRITTEN_GATHER:
            grads = [torch.zeros_like(grad) for grad in grads]
        return grads, tracker._native.failures()[0]

    expected, failures = step()
    assert failures == 0
    names = ["shards_of", "unsharded_params_of", "shard_grads_of", "unsharded_grads_of", "name_of"]
    for name in names:
        monkeypatch.setattr(fsdp_patches, name, refuse)
    for name in ("_is_first", "_is_last", "_in_backward"):
        monkeypatch.setattr(fsdp_patches, name, refuse)
    monkeypatch.setattr(compat_fsdp, "read_reduction", refuse)
    monkeypatch.setattr(FSDPMemTracker, "_track_group", lambda *_: None)
    found, failures = step()
    assert failures > 0
    assert_equal(found, expected)
