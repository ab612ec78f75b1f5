# SPDX-License-Identifier: BSD-3-Clause
"""The sizes of inputs and outputs, in whatever objects their tensors are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tidegauge import MemTracker
from torch import nn


@dataclass
class Data:
    first: torch.Tensor
    rest: dict[str, Any]


@dataclass(slots=True)
class Slotted:
    first: torch.Tensor
    rest: list[Any]


class Plain:
    """Refers to itself and to a model, and has a property that must not be called."""

    def __init__(self, tensor: torch.Tensor, model: nn.Module) -> None:
        self.tensor = tensor
        self.model = model
        self.itself = [self]

    @property
    def lazy(self) -> torch.Tensor:
        raise AssertionError("a property of the program was called")


class Model(nn.Module):
    def __init__(self, wrap: Callable[[torch.Tensor, nn.Module], Any]) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.wrap = wrap

    def forward(self, x: Any) -> Any:
        return self.wrap(torch.ones(3, 5), self)


WRAPS: dict[str, Callable[[torch.Tensor, nn.Module], Any]] = {
    "dataclass": lambda tensor, _: Data(tensor, {"again": tensor, "name": "x"}),
    "slots": lambda tensor, _: Slotted(tensor, [tensor, None]),
    "plain": Plain,
    "namespace": lambda tensor, _: SimpleNamespace(inner=SimpleNamespace(tensor=tensor)),
    "nested": lambda tensor, model: {"a": [Plain(tensor, model), (Data(tensor, {}),)]},
}


@pytest.mark.parametrize("name", WRAPS)
def test_tensors_in_objects_have_a_size(name: str) -> None:
    model = Model(WRAPS[name])
    with MemTracker() as tracker:
        output = model(WRAPS[name](torch.ones(2, 7), model))
        stats = tracker.memory_tracking[model]
    assert stats.output_mem == 3 * 5 * 4
    assert stats.input_mem == 2 * 7 * 4
    del output
    assert tracker._native.failures() == (0, "")


def test_functions_and_classes_carry_no_tensors() -> None:
    def function() -> None:
        pass

    function.tensor = torch.ones(9)  # type: ignore[attr-defined]
    held = SimpleNamespace(call=function, kind=Plain)
    model = Model(lambda tensor, _: held)
    with MemTracker() as tracker:
        model(None)
        assert tracker.memory_tracking[model].output_mem == 0
