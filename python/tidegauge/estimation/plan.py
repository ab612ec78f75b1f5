# SPDX-License-Identifier: BSD-3-Clause
"""How a model is trained. Equal plans make equal runs."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tidegauge._util.suggestions import did_you_mean

if TYPE_CHECKING:
    import torch

CHECKPOINTING = ("none", "selective", "full")


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

    def make(self, parameters: Any, **options: Any) -> torch.optim.Optimizer:
        import torch

        made: torch.optim.Optimizer = getattr(torch.optim, self.class_name)(
            parameters, **self.options, **options
        )
        return made


OPTIMIZERS = {
    "adamw": OptimizerKind("AdamW", smaller=("adafactor", "sgd-momentum")),
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
DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


def find_dtype(name: str) -> torch.dtype:
    """The type of torch for a name in DTYPES."""
    import torch

    found: torch.dtype = getattr(torch, DTYPES[name])
    return found


@dataclass(frozen=True)
class Plan:
    """The options of the command line, by name. Raises ValueError for invalid combinations.

    `fsdp`: number of ranks of FSDP2; 0 means not sharded. `hsdp`: replicas x ranks, as in "2x4".
    `tp`: number of ranks of tensor parallelism. `reshard`: parameters after forward: "auto" (the
    default of FSDP2: all but the root), "yes", "no", or a number of ranks. `mp`: the types of
    computation and reduction, as in "bf16/fp32"; without sharding, the type for autocast.
    `dtype`: convert the parameters to this type; empty: keep their type. `ac`: checkpointing of
    the blocks. `optimizer`: empty means the contract's, or adamw. `offload`: keep shards in host
    memory. `item`: the value that `item()` returns if it is not known; empty: raise an error.
    `settings`: the contract's settings that differ from their defaults.
    """

    fsdp: int = 0
    hsdp: str = ""
    tp: int = 1
    reshard: str = "auto"
    mp: str = ""
    dtype: str = ""
    ac: str = "none"
    optimizer: str = ""
    offload: bool = False
    item: str = ""
    settings: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        if self.hsdp and not re.fullmatch(r"[1-9]\d*x[1-9]\d*", self.hsdp):
            raise ValueError(f"invalid hsdp '{self.hsdp}' (expected replicas x ranks, e.g. 2x4)")
        if self.hsdp and self.fsdp:
            raise ValueError(
                f"fsdp={self.fsdp} and hsdp={self.hsdp} are mutually exclusive; hsdp includes the "
                "number of ranks"
            )
        if self.fsdp < 0 or self.tp < 1:
            raise ValueError(
                f"invalid fsdp={self.fsdp}, tp={self.tp} (expected at least 1 rank each)"
            )
        _check("ac", self.ac, CHECKPOINTING)
        _check("optimizer", self.optimizer, ("", *OPTIMIZERS))
        _check("dtype", self.dtype, ("", *DTYPES))
        for part in self.mp.split("/") if self.mp else ():
            _check("mp", part, tuple(DTYPES))
        if self.mp.count("/") > 1:
            raise ValueError(f"invalid mp '{self.mp}' (expected e.g. bf16 or bf16/fp32)")
        if self.item:
            _check_number("item", self.item)
        self._check_sharding()

    def _check_sharding(self) -> None:
        if self.reshard not in ("auto", "yes", "no"):
            degree = int(self.reshard) if self.reshard.isdecimal() else 0
            if degree < 1 or self.shards % degree:
                raise ValueError(
                    f"invalid reshard '{self.reshard}' (expected auto, yes, no, or a number of "
                    f"ranks that divides {self.shards})"
                )
        if not self.is_sharded:
            for name in ("offload", "reshard"):
                if getattr(self, name) not in (False, "auto"):
                    raise ValueError(f"{name} requires fsdp or hsdp")

    @property
    def is_sharded(self) -> bool:
        return bool(self.fsdp or self.hsdp)

    @property
    def copies(self) -> int:
        """The number of replicas: ranks that hold the same shard."""
        return int(self.hsdp.partition("x")[0]) if self.hsdp else 1

    @property
    def shards(self) -> int:
        return int(self.hsdp.partition("x")[2]) if self.hsdp else self.fsdp or 1

    @property
    def world_size(self) -> int:
        return self.copies * self.shards * self.tp

    @property
    def optimizer_kind(self) -> OptimizerKind:
        """The default if the plan names none; the contract may then make another."""
        return OPTIMIZERS[self.optimizer or DEFAULT_OPTIMIZER]

    @property
    def has_dtensors(self) -> bool:
        return self.is_sharded or self.tp > 1

    @property
    def compute_dtype(self) -> torch.dtype | None:
        return find_dtype(self.mp.partition("/")[0]) if self.mp else None

    @property
    def reduce_dtype(self) -> torch.dtype | None:
        name = self.mp.partition("/")[2]
        return find_dtype(name) if name else None

    def change(self, **changes: Any) -> Plan:
        return dataclasses.replace(self, **changes)

    def change_setting(self, name: str, value: Any) -> Plan:
        return self.change(settings=tuple(sorted({**dict(self.settings), name: value}.items())))

    def describe(self) -> str:
        """`FSDP2 over 8 ranks, bf16/fp32, selective checkpointing`."""
        parts = []
        if self.hsdp:
            parts.append(f"FSDP2 over {self.copies} x {self.shards} ranks")
        elif self.fsdp:
            parts.append(f"FSDP2 over {self.fsdp} rank{'' if self.fsdp == 1 else 's'}")
        if self.tp > 1:
            parts.append(f"tensor parallelism over {self.tp} ranks")
        if self.reshard != "auto":
            parts.append(f"reshard {self.reshard}")
        if self.dtype:
            parts.append(f"parameters in {self.dtype}")
        if self.mp:
            parts.append(self.mp if self.is_sharded else f"autocast to {self.mp}")
        parts.append("no checkpointing" if self.ac == "none" else f"{self.ac} checkpointing")
        if self.offload:
            parts.append("shards in host memory")
        return ", ".join(parts)


OPTIONS = tuple(field.name for field in dataclasses.fields(Plan) if field.name != "settings")


def parse_option(name: str, text: str) -> Any:
    """The value of a command-line option. Raises ValueError if it is invalid."""
    if name in ("fsdp", "tp"):
        if not text.isdecimal() or int(text) < 1:
            raise ValueError(f"invalid {name} '{text}' (expected a number of ranks, at least 1)")
        return int(text)
    if name == "offload":
        if text not in ("yes", "no"):
            raise ValueError(f"invalid offload '{text}' (expected yes or no)")
        return text == "yes"
    return text


def _check(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        hint = did_you_mean(value, [each for each in known if each])
        raise ValueError(f"invalid {name} '{value}': {hint}")


def _check_number(name: str, text: str) -> None:
    try:
        float(text)
    except ValueError:
        raise ValueError(f"invalid {name} '{text}' (expected a number)") from None
