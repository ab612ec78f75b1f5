# SPDX-License-Identifier: BSD-3-Clause
"""What `estimate` needs to know about a program (docs/estimate.md)."""

from __future__ import annotations

import os
import re
import textwrap
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tidegauge._util.suggestions import did_you_mean

if TYPE_CHECKING:
    import torch
    from torch import nn


_TORCHS = re.compile(r"[/\\]site-packages[/\\]torch[/\\]|^<")


class ContractError(ValueError):
    """The target is invalid or incomplete."""


class ModelError(RuntimeError):
    """The target's code raised an exception, which is the cause of this one."""


@dataclass(frozen=True)
class Contract:
    """A program that can be estimated. Only the first three functions are required.

    `settings`: names that `--set` may change, with their defaults; functions receive them as
    attributes. `blocks(model)`: the modules to checkpoint and shard one by one.
    `shard(model, fully_shard)`: calls `fully_shard(module)` on each unit, the root last.
    `tensor_parallel_plan(model)`: a plan for `parallelize_module`. `parallelize(model, mesh)`:
    applies tensor parallelism itself, instead of such a plan. `parallelize_experts(model, mesh,
    tp_mesh)`: gives each rank of a mesh its experts and exchanges tokens, and returns the modules
    with experts; the ranks of `tp_mesh` have the same tokens. `split_sequence(model, inputs)`: the
    tensors that context parallelism splits, each with its dimension of the sequence.
    `make_optimizer(model)`. `with_whole_inputs`: the contract to use for context parallelism.
    """

    name: str
    build_model: Callable[[Any], nn.Module]
    make_inputs: Callable[[Any], Any]
    compute_loss: Callable[[nn.Module, Any], torch.Tensor]
    settings: Mapping[str, Any] = field(default_factory=dict)
    blocks: Callable[[nn.Module], Sequence[nn.Module]] | None = None
    shard: Callable[[nn.Module, Callable[..., Any]], object] | None = None
    tensor_parallel_plan: Callable[[nn.Module], Mapping[str, Any]] | None = None
    parallelize: Callable[[nn.Module, Any], object] | None = None
    parallelize_experts: Callable[[nn.Module, Any, Any], Sequence[nn.Module]] | None = None
    split_sequence: Callable[[nn.Module, Any], Sequence[tuple[torch.Tensor, int]]] | None = None
    make_optimizer: Callable[[nn.Module], torch.optim.Optimizer] | None = None
    with_whole_inputs: Contract | None = None

    def resolve(self, changes: Mapping[str, Any]) -> SimpleNamespace:
        """All settings. Raises ValueError for an unknown name."""
        for name in changes:
            if name not in self.settings:
                hint = "it defines no SETTINGS"
                if self.settings:
                    hint = did_you_mean(name, [*self.settings])
                raise ValueError(f"{self.name} has no setting '{name}': {hint}")
        return SimpleNamespace(**{**self.settings, **changes})

    def parse_setting(self, name: str, text: str) -> Any:
        """Converts `text` to the type of the setting's default value."""
        value = getattr(self.resolve({name: text}), name)
        default = self.settings[name]
        if isinstance(default, bool):
            if value not in ("yes", "no", "true", "false"):
                raise ValueError(f"invalid {name} '{text}' (expected yes or no)")
            return value in ("yes", "true")
        if isinstance(default, int | float):
            try:
                return type(default)(text)
            except ValueError:
                kind = "an integer" if isinstance(default, int) else "a number"
                raise ValueError(f"invalid {name} '{text}' (expected {kind})") from None
        return text

    @contextmanager
    def wrap_errors(self, doing: str, let_pass: tuple[type[Exception], ...] = ()) -> Iterator[None]:
        """Turns an exception raised within into a ModelError that names the program's line."""
        try:
            yield
        except let_pass:
            raise
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            package = str(Path(__file__).parent.parent)
            theirs = [each for each in frames if not each.filename.startswith(package)]
            where = describe_line(theirs, self.name)
            _clear_frames(error)
            raise ModelError(
                f"{doing} of {self.name} failed{where}: {describe_error(error)}"
            ) from error


def _clear_frames(error: BaseException | None) -> None:
    """Ends what the frames of the error hold open, also if the caller keeps the error.

    A checkpoint whose forward raised holds a generator that has set hooks for saved tensors. They
    would recompute this model in the backward of the next one.
    """
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def describe_error(error: Exception) -> str:
    """The type and the first line of the message, which may have pages."""
    first = (str(error).splitlines() or [""])[0]
    # Users of `estimate` do not call `simulate`; its options do the same.
    first = first.replace("`simulate(item=1)`", "`--item 1`")
    first = first.replace('`simulate(routing="balanced")`', "`--routing balanced`")
    return f"{type(error).__name__}: {textwrap.shorten(first, 400, placeholder=' ...')}"


def describe_line(frames: Sequence[traceback.FrameSummary], name: str) -> str:
    """The innermost line of the program itself, or else the innermost one outside of torch."""
    own = [each for each in frames if Path(each.filename).name == Path(name).name]
    own = own or [each for each in frames if not _TORCHS.search(each.filename)] or [*frames[-1:]]
    return f" ({os.path.basename(own[-1].filename)}, line {own[-1].lineno})" if own else ""
