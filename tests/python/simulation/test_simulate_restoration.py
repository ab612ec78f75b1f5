# SPDX-License-Identifier: BSD-3-Clause
"""A simulation restores everything: torch's attributes, ops, threads, process groups."""

from __future__ import annotations

import threading
from contextlib import suppress
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.tensor  # a simulation loads it
from tidegauge import FSDPMemTracker, MemTracker, simulate
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed import device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage
from torch.distributed.tensor._sharding_prop import ShardingPropagator

OWNERS: list[type | ModuleType] = [
    *(torch, torch.Tensor, torch.UntypedStorage, torch.cuda, torch.accelerator, torch._ops),
    *(
        torch.random,
        torch.serialization,
        torch.nn.init,
        nn.Module,
        FakeTensorMode,
        threading.Thread,
    ),
    *(
        dist,
        dist.Reducer,
        PipelineStage,
        nn.parallel.distributed,
        device_mesh,
        device_mesh.DeviceMesh,
        ShardingPropagator,
        torch.autograd,
        torch._C,
    ),
]


def attributes() -> dict[tuple[str, str], Any]:
    return {
        (str(owner), name): value
        for owner in OWNERS
        for name, value in list(vars(owner).items())
        if not name.startswith("__") or callable(value)
    }


def changed(before: dict[tuple[str, str], Any]) -> list[tuple[str, str]]:
    after = attributes()
    return [key for key in before | after if after.get(key) is not before.get(key)]


def train_inside(**options: Any) -> None:
    with simulate(**options) as simulation:
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        if options.get("world_size"):
            fully_shard(model)
        optimizer = torch.optim.AdamW(model.parameters())
        tracker = FSDPMemTracker(model) if options.get("world_size") else MemTracker()  # type: ignore[arg-type]
        with tracker:
            model(torch.randn(2, 4)).sum().backward()
            optimizer.step()
        assert simulation.is_simulated(torch.ones(2))


@pytest.mark.parametrize("options", [{}, {"world_size": 4}, {"device": "cuda"}])
def test_every_attribute_of_torch_is_restored(options: dict[str, Any]) -> None:
    train_inside(**options)  # loads all modules once, before the comparison
    before = attributes()
    train_inside(**options)
    assert changed(before) == []
    assert not dist.is_initialized()


def test_this_test_detects_patches() -> None:
    before = attributes()
    with simulate():
        inside = changed(before)
    assert (str(torch.Tensor), "data_ptr") in inside
    assert (str(FakeTensorMode), "__enter__") in inside


def test_torch_is_restored_after_an_error() -> None:
    train_inside()
    before = attributes()
    with suppress(KeyError), simulate(world_size=2):
        raise KeyError
    assert changed(before) == []


def test_ops_are_real_again_with_equal_results() -> None:
    torch.manual_seed(0)
    layer, x = nn.Linear(8, 8), torch.randn(4, 8)
    expected = layer(x)
    train_inside(world_size=2)
    assert torch.equal(layer(x), expected)
    torch.manual_seed(0)
    assert torch.equal(nn.Linear(8, 8).weight, layer.weight)


def test_dispatch_keys_of_the_thread_are_restored() -> None:
    before = torch._C._dispatch_tls_local_include_set()
    excluded = torch._C._dispatch_tls_local_exclude_set()
    train_inside()
    assert str(torch._C._dispatch_tls_local_include_set()) == str(before)
    assert str(torch._C._dispatch_tls_local_exclude_set()) == str(excluded)


def test_tracker_of_a_real_run_is_exact_after_a_simulation() -> None:
    with simulate():
        left = torch.ones(100)
    with MemTracker() as tracker:
        x = torch.ones(16)
        total = tracker.get_tracker_snapshot()[torch.device("cpu")]["Total"]
    assert total == x.nbytes
    del left


def test_tracker_may_span_the_whole_simulation() -> None:
    real = torch.ones(4)
    with MemTracker() as tracker:
        tracker.track_external(real)
        with simulate():
            inside = torch.ones(1000)
            held = tracker.get_tracker_snapshot()[torch.device("cpu")]["Total"]
            assert held == 16 + 4000
            del inside
        real = real + 1
        assert tracker.get_tracker_snapshot()[torch.device("cpu")]["Total"] == 16
