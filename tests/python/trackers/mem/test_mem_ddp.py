# SPDX-License-Identifier: BSD-3-Clause
"""DistributedDataParallel: buckets are gradients, and so are gradients that are views of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from tidegauge import MemTracker
from tidegauge.report import read_summary
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from tracked import now, parameter_bytes


@pytest.fixture(autouse=True)
def _group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def model_and_input() -> tuple[nn.Module, torch.Tensor]:
    return nn.Sequential(nn.Linear(16, 32), nn.Linear(32, 8)), torch.ones(4, 16)


@pytest.mark.parametrize("is_view", [False, True])
@pytest.mark.parametrize("is_made_inside", [False, True])
def test_buckets_and_their_views_are_gradients(is_view: bool, is_made_inside: bool) -> None:
    """One bucket for all parameters: as many bytes as they have, once more than the gradients."""
    model, x = model_and_input()
    weights = parameter_bytes(model)

    def wrap() -> nn.Module:
        return DistributedDataParallel(model, gradient_as_bucket_view=is_view)

    ddp = None if is_made_inside else wrap()
    tracker = MemTracker()
    tracker.track_external(model, x)
    with tracker:
        ddp = ddp or wrap()
        for _ in range(3):  # the second forward makes the buckets again
            ddp(x).sum().backward()
            held = now(tracker)
            assert held.get("Activation", 0) == 0
            assert held["Gradient"] == (1 if is_view else 2) * weights
            for parameter in model.parameters():
                parameter.grad = None
            assert now(tracker)["Gradient"] == weights


def test_buckets_are_gradients_in_the_trace(tmp_path: Path) -> None:
    model, x = model_and_input()
    path = tmp_path / "run.tide"
    with MemTracker(record=path) as tracker:
        tracker.track_external(model, x)
        ddp = DistributedDataParallel(model)
        for _ in range(2):
            ddp(x).sum().backward()
    (peak,) = read_summary(path).peaks
    assert peak.categories["Gradient"] == 2 * parameter_bytes(model)


def test_run_is_the_same_with_a_tracker() -> None:
    def train(is_tracked: bool) -> list[float]:
        torch.manual_seed(0)
        model, x = model_and_input()
        ddp = DistributedDataParallel(model, gradient_as_bucket_view=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses = []
        tracker = MemTracker()
        if is_tracked:
            tracker.__enter__()
        for _ in range(3):
            loss = ddp(x).pow(2).sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
            losses.append(loss.item())
        if is_tracked:
            tracker.__exit__(None, None, None)
        return losses

    assert train(True) == train(False)
