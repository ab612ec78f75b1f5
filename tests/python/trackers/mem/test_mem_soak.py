# SPDX-License-Identifier: BSD-3-Clause
"""Nothing grows with the number of steps: 300 in `make test`, 20,000 in `make test-long`."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from scenarios_models import mlp
from scenarios_programs import Fails
from torch import nn
from torch.utils.checkpoint import checkpoint
from tracked import now, peak, track

STEPS = 20_000 if os.environ.get("TIDEGAUGE_LONG") == "1" else 300


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _plain(model: nn.Module, x: torch.Tensor) -> None:
    model(x).sum().backward()


def _checkpointed(model: nn.Module, x: torch.Tensor) -> None:
    checkpoint(model, x, use_reentrant=False).sum().backward()


def _evaluated(model: nn.Module, x: torch.Tensor) -> None:
    with torch.no_grad():
        model(x)


def _failing(model: nn.Module, x: torch.Tensor) -> None:
    failing = Fails()
    failing.fails = True
    with pytest.raises(ArithmeticError):
        failing(x)
    _plain(model, x)


def _resized(model: nn.Module, x: torch.Tensor) -> None:
    y = torch.empty(0)
    y.untyped_storage().resize_(4096)
    _plain(model, x)
    y.untyped_storage().resize_(0)


def _new_modules(model: nn.Module, x: torch.Tensor) -> None:
    nn.Sequential(nn.Linear(32, 32), nn.ReLU())(x).sum().backward()


STEP_KINDS: dict[str, Callable[[nn.Module, torch.Tensor], None]] = {
    "training": _plain,
    "checkpoint": _checkpointed,
    "evaluation": _evaluated,
    "exceptions": _failing,
    "resizes": _resized,
    "new_modules": _new_modules,
}


@pytest.mark.parametrize("resets", [True, False], ids=["resets", "iterations"])
@pytest.mark.parametrize("kind", STEP_KINDS)
def test_memory_does_not_grow_in_a_long_run(kind: str, resets: bool) -> None:
    model, x = mlp(), torch.ones(8, 32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9)
    tracker = track(model, optimizer, x)

    def steps(count: int) -> None:
        for _ in range(count):
            if resets:
                tracker.reset_mod_stats()
            STEP_KINDS[kind](model, x)
            optimizer.step()
            optimizer.zero_grad()

    with tracker:
        steps(STEPS // 5)
        gc.collect()
        held, top = now(tracker), peak(tracker)
        footprint, resident = tracker._native.footprint_bytes, resident_bytes()
        steps(STEPS)
        gc.collect()
        assert now(tracker) == held
        assert peak(tracker) == top
        # The log for late labels is trimmed when it has grown to a few 100 KiB.
        assert tracker._native.footprint_bytes <= max(footprint, 1 << 19)
        # Less than 20 bytes per step, or one chunk of the C library.
        assert resident_bytes() - resident < max(20 * STEPS, 1 << 20)
        assert len(tracker.memory_tracking) <= len(list(model.modules()))
    assert tracker._native.anomalies() == (0, "")


def test_many_trackers_leave_no_state() -> None:
    model, x = mlp(), torch.ones(8, 32)

    def track_one_step() -> None:
        tracker = track(model, x)
        with tracker:
            _plain(model, x)
        model.zero_grad()

    for _ in range(20):
        track_one_step()
    gc.collect()
    resident = resident_bytes()
    for _ in range(STEPS // 10):
        track_one_step()
    gc.collect()
    assert resident_bytes() - resident < max(200 * STEPS, 1 << 20)
