# SPDX-License-Identifier: BSD-3-Clause
"""The optimizers that a plan can name: their states have the bytes of the real ones."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
from tidegauge import MemTracker, simulate
from tidegauge.estimation import estimate
from tidegauge.estimation.optimizers import OPTIMIZERS, OptimizerKind
from torch import nn

WIDTH = 128  # low-bit optimizers keep the states of small parameters in 32 bits


def find_kind(name: str) -> OptimizerKind:
    if package := OPTIMIZERS[name].package:
        pytest.importorskip(package, reason="run: pip install -r requirements/locked/peers.txt")
    return OPTIMIZERS[name]


def train(kind: OptimizerKind, mode: AbstractContextManager[Any]) -> list[dict[str, int]]:
    """The split at the peak and after three steps."""
    with mode, torch.compiler.set_stance("force_eager"):  # compilation takes a minute
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH))
        x = torch.randn(2, WIDTH)
        optimizer = kind.make(model.parameters(), lr=1e-3)
        tracker = MemTracker()
        tracker.track_external(model, optimizer, x)
        with tracker:
            for _ in range(3):
                model(x).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
            return [
                tracker.get_tracker_snapshot(kind)[torch.device("cpu")]
                for kind in ("peak", "current")
            ]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_states_have_the_bytes_of_the_real_run(name: str) -> None:
    kind = find_kind(name)
    real_peak, real = train(kind, nullcontext())
    peak, after = train(kind, simulate(item=1.0 if kind.reads_values else "error"))
    assert after == real
    if kind.package != "torchao":  # whose step is compiled, so it has fewer temporary tensors
        assert peak == real_peak


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "bits"),
    [("torchao-adamw8bit", 8), ("torchao-adamw4bit", 4), ("bnb-adamw8bit", 8), ("adamw", 32)],
)
def test_estimate_has_two_states_of_these_bits(name: str, bits: int, model_file: str) -> None:
    """Scales of blocks and tables of values add at most an eighth."""
    find_kind(name)
    found = estimate(model_file, optimizer=name, settings={"batch": 1, "width": 256})
    weights = (2 * 120 * 256 + 3 * 2 * 256 * 256) * 2 * bits // 8
    assert weights <= found.peak.categories["Optstate"] <= weights * 9 // 8


def test_missing_package_is_named(model_file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bitsandbytes.optim", None)
    with pytest.raises(ValueError, match=r"AdamW8bit requires bitsandbytes: .*pip install"):
        estimate(model_file, optimizer="bnb-adamw8bit")
