# SPDX-License-Identifier: BSD-3-Clause
"""Wrong use is reported or harmless; FSDP2's classes are always restored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from counting import counting
from runs import read_split
from sharded import WIDTH, Net, flat_mesh, shard_all, world
from tidegauge import FSDPMemTracker
from tidegauge._torch import fsdp_patches
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.fsdp import fully_shard
from tracked import now

pytestmark = pytest.mark.filterwarnings("ignore")


def classes() -> list[Any]:
    return [
        patch._owner.__dict__[patch._name] for patch in fsdp_patches._FOR_FSDP._patches.values()
    ]


@pytest.fixture(autouse=True)
def _world() -> Iterator[None]:
    before = classes()
    with world(4):
        yield
    assert all(a is b for a, b in zip(classes(), before, strict=True))


def test_root_that_is_not_sharded_is_refused() -> None:
    with pytest.raises(AssertionError, match="FSDPMemTracker only supports FSDP modules"):
        FSDPMemTracker(Net())


def test_optimizer_made_before_sharding_is_reported() -> None:
    model = Net()
    optimizer = torch.optim.SGD(model.parameters())
    shard_all(model)
    with (
        pytest.warns(UserWarning, match="Make the optimizer after fully_shard"),
        FSDPMemTracker(model, optimizer),
    ):
        pass


def test_optimizer_of_another_model_is_reported() -> None:
    optimizer = torch.optim.SGD(nn.Linear(2, 2).parameters())
    with (
        pytest.warns(UserWarning, match="no parameter of the SGD belongs to the FSDPNet"),
        FSDPMemTracker(shard_all(Net()), optimizer),
    ):
        pass


def test_object_that_is_not_an_optimizer_is_refused() -> None:
    with pytest.raises(TypeError, match="optm is a list, expected an optimizer or None"):
        FSDPMemTracker(shard_all(Net()), [])  # type: ignore[arg-type]


def test_submodule_sharded_within_the_context_is_a_unit() -> None:
    model, x = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)), torch.ones(8, WIDTH)
    with counting() as allocator:
        fully_shard(model[0], mesh=flat_mesh())
        tracker = FSDPMemTracker(model[0])  # type: ignore[arg-type]
        with tracker:
            base = allocator.read().storage_bytes - now(tracker)["Total"]
            fully_shard(model[1], mesh=flat_mesh())
            model(x).sum().backward()
            assert now(tracker)["Total"] == allocator.read().storage_bytes - base
    assert [unit["state"] for unit in tracker.units()] == ["sharded", "sharded"]
    assert list(tracker.memory_tracking) == [model[0], model[1]]


def test_gather_without_a_process_group_is_refused() -> None:
    tracker = FSDPMemTracker(shard_all(Net()))
    with tracker:
        dist.destroy_process_group()
        with pytest.raises(RuntimeError, match="gather\\(\\) needs a process group"):
            tracker.gather()
    dist.init_process_group("fake", rank=0, world_size=1, store=dist.HashStore())


@pytest.mark.parametrize("is_fake", [False, True])
def test_gather_over_a_fake_group(is_fake: bool) -> None:
    """Collectives of a fake group copy: all ranks are this one."""
    mesh = flat_mesh()
    with FakeTensorMode() if is_fake else torch.enable_grad():
        model = fully_shard(nn.Linear(8, 8, bias=False), mesh=mesh)
        with FSDPMemTracker(model) as tracker:
            gathered = tracker.gather("current")
            assert gathered is not None
            assert gathered["cpu"]["Total"]["all"] == [8 * 8 * 4 // 4] * 4
            assert now(tracker)["Total"] == 8 * 8 * 4 // 4


def test_exception_in_backward_leaves_no_anomalies() -> None:
    model, x = shard_all(Net()), torch.randn(8, WIDTH)

    def fail(_grad: torch.Tensor) -> None:
        raise ValueError("no")

    tracker = FSDPMemTracker(model)
    with tracker:
        handle = model.blocks[1].narrow.register_full_backward_hook(lambda *_: fail(x))
        with pytest.raises(ValueError, match="no"):
            model(x).sum().backward()
        handle.remove()
    assert tracker._native.anomalies() == (0, "")
    assert tracker._native.failures() == (0, "")


def test_failure_in_our_code_does_not_reach_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = shard_all(Net()), torch.randn(8, WIDTH)

    def fail(*_: object) -> list[torch.Tensor]:
        raise ValueError("ours")

    with FSDPMemTracker(model) as tracker:
        monkeypatch.setattr(fsdp_patches, "shard_grads_of", fail)
        model(x).sum().backward()
    assert tracker._native.failures() == (4, "_notify_reduced: ValueError: ours")


def test_unit_gathered_without_need_is_released() -> None:
    """The backward of the second block prefetches the first, which has no backward."""
    model, x = shard_all(Net()), torch.randn(8, WIDTH)
    model.blocks[0].requires_grad_(False)
    with FSDPMemTracker(model) as tracker:
        model(x).sum().backward()
        states = {unit["name"]: unit["state"] for unit in tracker.units()}
    assert states["blocks.0"] == "sharded"
    assert read_split(tracker.get_tracker_snapshot()).get("All Gather", 0) == 0
