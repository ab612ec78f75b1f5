# SPDX-License-Identifier: BSD-3-Clause
"""The optimizers that a plan can name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class OptimizerKind:
    """An optimizer that a plan can name, and what a simulation must know about it.

    `reads_values`: the step calls `item()`; the value does not change the memory. `smaller`:
    optimizers with less state, to suggest instead, the smallest first.
    """

    class_name: str
    module: str = "torch.optim"
    package: str = ""  # to install, if it is not torch
    has_foreach: bool = True
    reads_values: bool = False
    supports_dtensor: bool = True
    smaller: tuple[str, ...] = ()
    has_modes: bool = False  # has to be told that it trains
    options: Mapping[str, Any] = field(default_factory=dict)

    def find_class(self) -> type[torch.optim.Optimizer]:
        """Raises ValueError if the package is not installed."""
        try:
            found: type[torch.optim.Optimizer] = getattr(
                import_module(self.module), self.class_name
            )
        except (ImportError, AttributeError) as error:
            raise ValueError(
                f"the optimizer {self.class_name} requires {self.package or 'a newer torch'}: "
                f"{error} (pip install {self.package or 'torch'})"
            ) from None
        return found

    def make(self, parameters: Any, **options: Any) -> torch.optim.Optimizer:
        make: Any = self.find_class()
        made: torch.optim.Optimizer = make(parameters, **self.options, **options)
        if self.has_modes:
            made.train()  # type: ignore[attr-defined]
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
    "nadam": OptimizerKind("NAdam"),
    "radam": OptimizerKind("RAdam"),
    "adamax": OptimizerKind("Adamax"),
    "adadelta": OptimizerKind("Adadelta"),
    "asgd": OptimizerKind("ASGD"),
    "rprop": OptimizerKind("Rprop"),
    **{
        f"torchao-{name.lower()}": OptimizerKind(name, "torchao.optim", "torchao", False)
        for name in ("AdamW8bit", "AdamW4bit", "AdamWFp8")
    },
    **{
        f"bnb-{name.lower()}": OptimizerKind(
            name, "bitsandbytes.optim", "bitsandbytes", False, supports_dtensor=False
        )
        for name in ("AdamW8bit", "Lion8bit", "Adam8bit")
    },
    "schedulefree-adamw": OptimizerKind(
        "AdamWScheduleFree", "schedulefree", "schedulefree", False, has_modes=True
    ),
    "schedulefree-sgd": OptimizerKind(
        "SGDScheduleFree", "schedulefree", "schedulefree", False, has_modes=True
    ),
}
DEFAULT_OPTIMIZER = "adamw"
