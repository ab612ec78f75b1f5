# SPDX-License-Identifier: BSD-3-Clause
"""What the closure of an optimizer step makes is not part of the step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tidegauge import MemTracker
from torch import nn
from torch.nn import functional
from tracked import now

WIDTH, BATCH = 16, 64


def setting() -> tuple[nn.Module, torch.Tensor, torch.optim.Optimizer]:
    model, x = nn.Linear(WIDTH, WIDTH), torch.ones(BATCH, WIDTH)
    return model, x, torch.optim.SGD(model.parameters(), lr=0.1)


@pytest.mark.parametrize("is_keyword", [False, True])
def test_loss_of_a_closure_is_an_activation(is_keyword: bool) -> None:
    """The squares of all outputs and their mean are made outside of modules."""
    model, x, optimizer = setting()
    seen: list[dict[str, int]] = []

    def closure() -> torch.Tensor:
        squares = model(x).square()
        loss = squares.mean()
        seen.append(now(tracker))
        loss.backward()
        return loss

    tracker = MemTracker()
    tracker.track_external(model, optimizer, x)
    with tracker:
        loss = optimizer.step(closure=closure) if is_keyword else optimizer.step(closure)
        assert now(tracker)["Activation"] == loss.nbytes
        assert "Optstate" not in now(tracker)
    assert "Optstate" not in seen[0]
    assert seen[0]["Activation"] == 2 * BATCH * WIDTH * 4 + 4


def test_step_inside_a_closure_is_a_step() -> None:
    model, x, optimizer = setting()
    inner = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)
    seen: list[bool] = []

    def innermost() -> torch.Tensor:
        seen.append(tracker._in_opt)
        return torch.zeros(())

    def closure() -> torch.Tensor:
        seen.append(tracker._in_opt)
        inner.register_step_post_hook(lambda *args: seen.append(tracker._in_opt))
        inner.step(innermost)
        seen.append(tracker._in_opt)
        return functional.mse_loss(model(x), x)

    with MemTracker() as tracker:
        optimizer.register_step_post_hook(lambda *args: seen.append(tracker._in_opt))
        optimizer.step(closure)
    assert seen == [False, False, True, False, True]


def test_optimizers_without_a_closure_get_their_own_arguments() -> None:
    seen: list[Any] = []

    class Optimizer(torch.optim.SGD):
        def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
            seen.append(closure)

    optimizer = Optimizer([torch.zeros(1, requires_grad=True)], lr=0.1)
    with MemTracker():
        optimizer.step()
        optimizer.step(None)
        optimizer.step(closure=None)
    assert seen == [None, None, None]


def test_closure_that_raises_ends_its_step() -> None:
    model, x, optimizer = setting()

    def closure() -> torch.Tensor:
        raise ZeroDivisionError

    with MemTracker() as tracker:
        with pytest.raises(ZeroDivisionError):
            optimizer.step(closure)
        assert not tracker._in_opt
        y = model(x).square()
        assert now(tracker).get("Optstate", 0) == 0
        del y
