# SPDX-License-Identifier: BSD-3-Clause
"""What `estimate` needs to know about a program (docs/estimate.md)."""

from __future__ import annotations

import os
import textwrap
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from tidegauge._util.suggestions import did_you_mean


class ContractError(ValueError):
    """The target is none, or lacks something."""


class ModelError(RuntimeError):
    """The code of the target has raised; its exception is the cause."""


@dataclass(frozen=True)
class Contract:
    """A program that can be estimated. All functions but the first three may be missing.

    `settings`: the names that `--set` may change, with the values they have otherwise; functions
    get them as attributes. `blocks(model)`: the modules to checkpoint and shard one by one.
    `shard(model, fully_shard)`: calls `fully_shard(module)` on each unit, the root last.
    `tensor_parallel_plan(model)`: as `parallelize_module` takes it. `make_optimizer(model)`.
    """

    name: str
    build_model: Callable[[Any], nn.Module]
    make_inputs: Callable[[Any], Any]
    compute_loss: Callable[[nn.Module, Any], torch.Tensor]
    settings: Mapping[str, Any] = field(default_factory=dict)
    blocks: Callable[[nn.Module], Sequence[nn.Module]] | None = None
    shard: Callable[[nn.Module, Callable[..., Any]], object] | None = None
    tensor_parallel_plan: Callable[[nn.Module], Mapping[str, Any]] | None = None
    make_optimizer: Callable[[nn.Module], torch.optim.Optimizer] | None = None

    def resolve(self, changes: Mapping[str, Any]) -> SimpleNamespace:
        """All settings; ValueError for a name that is none."""
        for name in changes:
            if name not in self.settings:
                hint = (
                    did_you_mean(name, [*self.settings]) if self.settings else "SETTINGS is missing"
                )
                raise ValueError(f"{self.name} has no setting '{name}': {hint}")
        return SimpleNamespace(**{**self.settings, **changes})

    def parse_setting(self, name: str, text: str) -> Any:
        """As the type of the value that the setting has otherwise."""
        value = getattr(self.resolve({name: text}), name)
        default = self.settings[name]
        if isinstance(default, bool):
            if value not in ("yes", "no", "true", "false"):
                raise ValueError(f"the setting {name} is yes or no, not '{text}'")
            return value in ("yes", "true")
        if isinstance(default, int | float):
            try:
                return type(default)(text)
            except ValueError:
                kind = "a whole number" if isinstance(default, int) else "a number"
                raise ValueError(f"the setting {name} is {kind}, not '{text}'") from None
        return text

    @contextmanager
    def telling(self, doing: str) -> Iterator[None]:
        """Whatever is raised within is the program's: a ModelError says where it was."""
        try:
            yield
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            package = str(Path(__file__).parent.parent)
            theirs = [each for each in frames if not each.filename.startswith(package)]
            where = describe_line(theirs, self.name)
            raise ModelError(
                f"{doing} of {self.name} failed{where}: {describe_error(error)}"
            ) from error


def describe_error(error: Exception) -> str:
    """In one line; torch may write pages."""
    first = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {textwrap.shorten(first, 400, placeholder=' ...')}"


def describe_line(frames: Sequence[traceback.FrameSummary], name: str) -> str:
    """The innermost line of the program itself, or else of anybody's."""
    own = [each for each in frames if Path(each.filename).name == Path(name).name] or frames[-1:]
    return f" ({os.path.basename(own[-1].filename)}, line {own[-1].lineno})" if own else ""
