# SPDX-License-Identifier: BSD-3-Clause
"""The optimizers that a plan can name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class OptimizerKind:
    """An optimizer that a plan can name, and what a simulation must know about it.

    `reads_values`: the step calls `item()`; the value does not change the memory. `smaller`:
    optimizers with less state, to suggest instead, the smallest first.
    """

    class_name: str  # in torch.optim
    has_foreach: bool = True
    reads_values: bool = False
    supports_dtensor: bool = True
    smaller: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def optimizer_class(self) -> type[torch.optim.Optimizer]:
        import torch

        found: type[torch.optim.Optimizer] = getattr(torch.optim, self.class_name)
        return found

    def make(self, parameters: Any, **options: Any) -> torch.optim.Optimizer:
        make: Any = self.optimizer_class
        made: torch.optim.Optimizer = make(parameters, **self.options, **options)
        return made


OPTIMIZERS = {
    "adamw": OptimizerKind("AdamW", smaller=("adafactor", "sgd-momentum")),
    "adamw-fused": OptimizerKind(
        "AdamW",
        has_foreach=False,
        smaller=("adafactor", "sgd-momentum"),
        options={"fused": True},
    ),
    "adam": OptimizerKind("Adam", smaller=("adafactor", "sgd-momentum")),
    "sgd": OptimizerKind("SGD"),
    "sgd-momentum": OptimizerKind("SGD", options={"momentum": 0.9}),
    "adafactor": OptimizerKind(
        "Adafactor", has_foreach=False, reads_values=True, supports_dtensor=False
    ),
    "rmsprop": OptimizerKind("RMSprop"),
    "adagrad": OptimizerKind("Adagrad"),
}
DEFAULT_OPTIMIZER = "adamw"
