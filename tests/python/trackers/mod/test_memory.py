# SPDX-License-Identifier: BSD-3-Clause
"""A tracked loop accumulates no Python objects, no hooks and no process memory."""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tidegauge
import torch
from models import Checkpointed, Net, inputs, train
from observe import Tracker, UpstreamModTracker
from torch import nn

Step = Callable[[], Any]
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


def object_count() -> int:
    gc.collect()
    return len(gc.get_objects())


def growth(step: Step, warm_up: int, steps: int) -> tuple[int, int]:
    """(Python objects, bytes) that `steps` steps add."""
    for _ in range(warm_up):
        step()
    objects, size_bytes = object_count(), resident_bytes()
    for _ in range(steps):
        step()
    return object_count() - objects, resident_bytes() - size_bytes


def tracker_with(has_hooks: bool) -> tidegauge.ModTracker:
    tracker = tidegauge.ModTracker()
    if has_hooks:
        tracker.register_user_hooks(*[lambda *_: None] * 4)
    return tracker


def make_train_step() -> Step:
    model, x = Net(), inputs()
    return lambda: train(model, x)


def make_eval_step() -> Step:
    model, x = Net(), inputs()

    def step() -> None:
        with torch.no_grad():
            model(x)

    return step


def make_forward_with_grad_only() -> Step:
    """The loss is never differentiated: the graph is freed unused."""
    model, x = Net(), inputs()
    return lambda: model(x).sum()


def make_new_model_each_step() -> Step:
    return lambda: train(Net())


def make_checkpoint_step() -> Step:
    models = [Checkpointed(False), Checkpointed(True)]
    return lambda: [train(model) for model in models]


def make_same_non_leaf_input() -> Step:
    """A hook per call on the node of `x` would live as long as `x`."""
    model, x = Net(), inputs().sin()

    def step() -> None:
        model(x).sum().backward(retain_graph=True)

    return step


def make_same_input_forward_only() -> Step:
    model, x = nn.Tanh(), inputs().sin()
    return lambda: model(x)


def make_failing_forward() -> Step:
    model, x = Net(), torch.ones(2, 5)

    def step() -> None:
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            model(x)

    return step


def make_failing_backward() -> Step:
    model = Net()

    def fail(grad: torch.Tensor) -> None:
        raise RuntimeError("boom")

    def step() -> None:
        x = inputs()
        x.register_hook(fail)
        with pytest.raises(RuntimeError, match="boom"):
            train(model, x)

    return step


def make_unused_output() -> Step:
    """Backward through one of two graphs; the other one is freed."""
    model, x = Net(), inputs()

    def step() -> None:
        unused = model(x)
        train(model, x)
        del unused

    return step


LOOPS = [
    make_train_step,
    make_eval_step,
    make_forward_with_grad_only,
    make_new_model_each_step,
    make_checkpoint_step,
    make_same_non_leaf_input,
    make_same_input_forward_only,
    make_failing_forward,
    make_failing_backward,
    make_unused_output,
]


@pytest.mark.parametrize("has_hooks", [False, True])
@pytest.mark.parametrize("make_step", LOOPS)
def test_loop_of_200_steps_adds_no_objects(make_step: Callable[[], Step], has_hooks: bool) -> None:
    step = make_step()
    with tracker_with(has_hooks):
        objects, _ = growth(step, warm_up=150, steps=200)
    assert objects < 100  # less than one per two steps


@pytest.mark.parametrize("has_hooks", [False, True])
def test_entering_each_step_adds_no_objects(has_hooks: bool) -> None:
    inner = make_train_step()

    def step() -> None:
        with tracker_with(has_hooks):
            inner()

    objects, _ = growth(step, warm_up=150, steps=200)
    assert objects < 100


def test_upstream_eval_loop_grows() -> None:
    """Upstream keeps at least one closure for each call in which no input needs grad."""
    model, x = nn.Tanh(), inputs(requires_grad=False)

    def step() -> None:
        with torch.no_grad():
            model(x)

    tracker = UpstreamModTracker()
    with tracker:
        objects, _ = growth(step, warm_up=10, steps=200)
    assert len(tracker._post_bw_callbacks_to_enqueue) == 210
    assert objects >= 200
    with tidegauge.ModTracker():
        objects, _ = growth(step, warm_up=10, steps=200)
    assert objects < 100


@pytest.mark.parametrize("has_hooks", [False, True])
def test_model_is_freed_when_the_user_drops_it(has_hooks: bool) -> None:
    with tracker_with(has_hooks):
        model = train(Net())
        references = [weakref.ref(mod) for mod in model.modules()]
        references += [weakref.ref(p) for p in model.parameters()]
        del model
        gc.collect()
        assert [reference() for reference in references] == [None] * 8


@pytest.mark.parametrize("has_hooks", [False, True])
def test_graph_is_freed_when_the_user_drops_it(has_hooks: bool) -> None:
    freed: list[str] = []

    class Witness:
        def __del__(self) -> None:
            freed.append("graph")

    class Holding(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.witness = Witness()
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            return grad

    model = nn.Tanh()
    with tracker_with(has_hooks):
        output = model(Holding.apply(inputs()))
        assert freed == []
        del output
        assert freed == ["graph"]


def test_user_hooks_are_freed() -> None:
    class Owner:
        def hook(self, *args: Any) -> None:
            pass

    owner = Owner()
    reference = weakref.ref(owner)
    tracker = tidegauge.ModTracker()
    tracker.register_user_hooks(owner.hook, owner.hook, owner.hook, owner.hook)
    model = Net()
    with tracker:
        loss = model(inputs()).sum()
    tracker.clear_user_hooks()
    del owner
    gc.collect()
    assert reference() is None
    loss.backward()


def test_tracker_can_be_freed_before_its_graph() -> None:
    tracker = tracker_with(has_hooks=True)
    with tracker:
        loss = Net()(inputs()).sum()
    reference = weakref.ref(tracker)
    del tracker
    gc.collect()
    assert reference() is None
    loss.backward()


def test_hooks_that_refer_to_their_tracker_are_collected_with_it() -> None:
    def run(make: type[Tracker]) -> list[weakref.ref[Any]]:
        tracker, model = make(), Net()
        tracker.register_user_hooks(
            lambda mod, args: tracker.get_known_fqn(mod),
            pre_bw_hook=lambda mod, grads: (tracker.parents, model),
        )
        with tracker:
            train(model)
        return [weakref.ref(tracker), weakref.ref(model)]

    def is_alive_after(make: type[Tracker]) -> list[bool]:
        references = run(make)
        gc.collect()
        return [reference() is not None for reference in references]

    assert is_alive_after(UpstreamModTracker) == [True, True]
    assert is_alive_after(tidegauge.ModTracker) == [False, False]


@pytest.mark.long
@pytest.mark.parametrize("has_hooks", [False, True])
@pytest.mark.parametrize("make_step", LOOPS)
def test_loop_of_10000_steps_adds_no_memory(make_step: Callable[[], Step], has_hooks: bool) -> None:
    step = make_step()
    with tracker_with(has_hooks):
        objects, size_bytes = growth(step, warm_up=2_000, steps=10_000)
    assert objects < 100
    assert size_bytes < 2 << 20  # 200 bytes per step; one closure of upstream's would be more
