# SPDX-License-Identifier: BSD-3-Clause
"""Runs the same code with our MemTracker and upstream's: `assert_same(lambda tool: ...)`."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import tidegauge.mem_tracker as ours
import torch
import torch.distributed._tools.mem_tracker as upstream
from models import inputs
from torch import nn

CPU = torch.device("cpu")


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))


def assert_same(body: Callable[[ModuleType], Any]) -> Any:
    """Runs it with both, checks that the results are equal and returns the result."""
    mine = body(ours)
    assert mine == body(upstream)
    return mine


def error_of(body: Callable[[], Any]) -> str:
    with pytest.raises(Exception) as caught:  # noqa: PT011  (which one is compared)
        body()
    return f"{type(caught.value).__name__}: {caught.value}"


def strict(tool: ModuleType) -> Any:
    return ours.MemTracker(strict=True) if tool is ours else upstream.MemTracker()


def train_step(tracker: Any, model: nn.Module) -> nn.Module:
    with tracker:
        model(inputs()).sum().backward()
    return model


def layout(tracker: Any) -> dict[str, Any]:
    """module -> (its sizes, its states with their counts)"""
    return {
        stats.mod_fqn: (
            {name: value for name, value in sorted(vars(stats).items()) if name.endswith("_mem")},
            [(state.name, len(calls)) for state, calls in stats.snapshots.items()],
        )
        for stats in tracker.memory_tracking.values()
    }
