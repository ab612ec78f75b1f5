# SPDX-License-Identifier: BSD-3-Clause
"""A tracked training equals the untracked one, bit for bit."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import tidegauge
import torch
from models import Checkpointed, CheckpointedFunction, Net, Residual, Shared, Tied, Twice, inputs
from torch import nn

STEPS = 5


def encoder() -> nn.Module:
    return nn.TransformerEncoderLayer(4, 2, 8, dropout=0.1)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "net": Net,
    "residual": Residual,
    "twice": Twice,
    "shared": Shared,
    "dropout": encoder,
    "checkpoint": lambda: Checkpointed(False, encoder()),
    "reentrant": lambda: Checkpointed(True, encoder()),
    "function": lambda: CheckpointedFunction(False),
    "batch_norm": lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)),
    "in_place": lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 4)),
}


def tracked(has_hooks: bool) -> tidegauge.ModTracker:
    tracker = tidegauge.ModTracker()
    if has_hooks:
        tracker.register_user_hooks(*[lambda *_: tracker.parents] * 4)
    return tracker


def training(
    build: Callable[[], nn.Module], context: contextlib.AbstractContextManager[Any], x: torch.Tensor
) -> list[torch.Tensor]:
    """Losses, gradients, parameters and the gradient of the input after five steps."""
    torch.manual_seed(0)
    model = build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    results: list[torch.Tensor] = []
    x = x.clone().requires_grad_(x.is_floating_point())
    with context:
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = model(x).square().sum()
            loss.backward()
            results.append(loss.detach().clone())
            results += [p.grad.clone() for p in model.parameters() if p.grad is not None]
            optimizer.step()
    results += [p.detach() for p in model.parameters()]
    if x.grad is not None:
        results.append(x.grad)
    return results


@pytest.mark.parametrize("has_hooks", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_losses_gradients_and_parameters_are_bit_equal(name: str, has_hooks: bool) -> None:
    x = torch.linspace(-1, 1, 8).reshape(2, 4)
    plain = training(MODELS[name], contextlib.nullcontext(), x)
    seen = training(MODELS[name], tracked(has_hooks), x)
    assert len(plain) > 2 * STEPS
    assert [t.tolist() for t in plain] == [t.tolist() for t in seen]


@pytest.mark.parametrize("has_hooks", [False, True])
def test_tied_weights_are_bit_equal(has_hooks: bool) -> None:
    tokens = torch.tensor([1, 2, 2])
    plain = training(Tied, contextlib.nullcontext(), tokens)
    seen = training(Tied, tracked(has_hooks), tokens)
    assert [t.tolist() for t in plain] == [t.tolist() for t in seen]


def test_gradient_is_moved_and_not_copied() -> None:
    """A hook on the accumulator that held the gradient would make autograd copy it."""
    pointers: list[int] = []
    model = nn.Linear(4, 4)
    tracker = tracked(has_hooks=True)
    model.weight.register_hook(lambda grad: pointers.append(grad.data_ptr()))
    with tracker:
        model(inputs()).sum().backward()
    assert model.weight.grad is not None
    assert pointers == [model.weight.grad.data_ptr()]


def test_user_hooks_on_the_same_tensors_run_in_order() -> None:
    order: list[str] = []
    tracker = tidegauge.ModTracker()
    tracker.register_user_hooks(pre_bw_hook=lambda *_: order.append("tracker"))
    with tracker:
        y = nn.Tanh()(inputs())
        y.register_hook(lambda grad: order.append("first"))
        y.register_hook(lambda grad: order.append("second"))
        y.sum().backward()
    assert sorted(order) == ["first", "second", "tracker"]
    assert order.index("first") < order.index("second")


def test_hook_that_changes_a_gradient_still_works() -> None:
    x = inputs()
    tracker = tracked(has_hooks=True)
    with tracker:
        y = nn.Identity()(x.clone())
        y.register_hook(lambda grad: 3 * grad)
        nn.Identity()(y).sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, torch.full((2, 4), 3.0))


def test_output_is_the_same_object_that_forward_returned() -> None:
    made: list[Any] = []

    class Returning(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            made.append((x.sin(), {"a": x}))
            return made[-1]

    with tracked(has_hooks=True):
        assert Returning()(inputs()) is made[0]


def test_errors_have_the_traceback_of_the_forward() -> None:
    def traceback_names(error: BaseException) -> list[str]:
        frames, tb = [], error.__traceback__
        while tb is not None:
            frames.append(tb.tb_frame.f_code.co_name)
            tb = tb.tb_next
        return frames

    with tracked(has_hooks=False), pytest.raises(RuntimeError, match="shapes") as error:
        Net()(torch.ones(2, 5))
    assert traceback_names(error.value)[-1] == "forward"
