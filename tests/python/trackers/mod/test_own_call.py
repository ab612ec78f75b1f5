# SPDX-License-Identifier: BSD-3-Clause
"""Modules that are not called through nn.Module's own `__call__`."""

from __future__ import annotations

from typing import Any

import tidegauge
import torch
from models import Net, inputs, train
from observe import ours, upstream
from torch import nn


class WithSuper(Net):
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(*args, **kwargs).sin()


class WithoutSuper(Net):
    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.forward(x)


class ByForward(nn.Module):
    """Calls `forward` of its child directly, which bypasses all hooks."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc.forward(x)


class ByCallImpl(ByForward):
    """Calls `_call_impl`, which runs hooks but is not `__call__`, as some wrappers do."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc._call_impl(x)


def test_call_with_super_is_tracked_without_its_own_ops() -> None:
    theirs, mine = upstream(lambda: train(WithSuper())), ours(lambda: train(WithSuper()))
    assert mine.forward == theirs.forward
    assert "sin: -" in mine.forward
    assert mine.backward == theirs.backward
    assert sorted(mine.hooks) == sorted(theirs.hooks)


def test_call_without_super_is_not_tracked_but_its_children_are() -> None:
    theirs, mine = upstream(lambda: train(WithoutSuper())), ours(lambda: train(WithoutSuper()))
    forward = [line for line in mine.forward if line.startswith(("addmm", "relu"))]
    assert forward == ["addmm: Linear", "relu: ReLU", "addmm: Linear#2"]
    assert [line for line in theirs.forward if line.startswith(("addmm", "relu"))] == [
        *["addmm: Linear", "relu: ReLU"],
        "addmm: Linear",
    ]


def test_children_of_a_call_without_super_have_their_path_names() -> None:
    theirs, mine = (see(lambda: train(nn.Sequential(WithoutSuper()))) for see in (upstream, ours))
    assert mine.forward == theirs.forward
    assert "addmm: Sequential Sequential.0.fc1" in mine.forward


def test_forward_called_directly_is_part_of_the_caller() -> None:
    theirs, mine = upstream(lambda: train(ByForward())), ours(lambda: train(ByForward()))
    assert mine.forward == theirs.forward
    assert "addmm: ByForward" in mine.forward


def test_call_impl_called_directly_is_part_of_the_caller() -> None:
    theirs, mine = upstream(lambda: train(ByCallImpl())), ours(lambda: train(ByCallImpl()))
    assert "addmm: ByCallImpl ByCallImpl.fc" in theirs.forward
    assert "addmm: ByCallImpl" in mine.forward


def test_call_copied_to_a_subclass_still_works_after_exit() -> None:
    """A subclass that copied our `__call__` from nn.Module keeps working after exit."""
    with tidegauge.ModTracker():
        taken = type("Taken", (Net,), {"__call__": nn.Module.__call__})
    model = taken()
    expected = Net.__call__(model, inputs())
    assert torch.equal(model(inputs()), expected)
    tracker = tidegauge.ModTracker()
    with tracker:
        assert torch.equal(model(inputs()), expected)
    assert tracker.get_known_fqn(model) == "Taken"


def test_module_that_returns_objects_has_backward_hooks() -> None:
    class Output(dict[str, torch.Tensor]):
        pass

    class Returning(Net):
        def forward(self, x: torch.Tensor) -> Any:
            return Output(loss=super().forward(x).sum(), extra=[None, 3, "text"])

    def scenario() -> nn.Module:
        model = Returning()
        model(inputs())["loss"].backward()
        return model

    hooks = ours(scenario).hooks
    assert hooks.count("pre_bw Returning") == hooks.count("post_bw Returning") == 1
