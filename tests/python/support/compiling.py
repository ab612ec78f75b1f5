# SPDX-License-Identifier: BSD-3-Clause
"""The ways to compile a module, for tests that tracking neither breaks nor repeats compilation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
import torch
from torch import nn

Compile: TypeAlias = Callable[[nn.Module, Any], Callable[..., Any]]


def as_module(model: nn.Module, backend: Any) -> Callable[..., Any]:
    return torch.compile(model, backend=backend, fullgraph=True)


def in_place(model: nn.Module, backend: Any) -> Callable[..., Any]:
    model.compile(backend=backend, fullgraph=True)
    return model


def as_function(model: nn.Module, backend: Any) -> Callable[..., Any]:
    return torch.compile(lambda x: model(x), backend=backend, fullgraph=True)


KINDS = pytest.mark.parametrize("compiled", [as_module, in_place, as_function])


def reset_compiler() -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


def graph_breaks() -> int:
    return sum(torch._dynamo.utils.counters["graph_break"].values())
