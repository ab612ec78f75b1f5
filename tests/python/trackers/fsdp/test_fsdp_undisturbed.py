# SPDX-License-Identifier: BSD-3-Clause
"""The tracker adds nothing to a model and restores FSDP2's classes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from sharded import Net, flat_mesh, shard_all, world
from tidegauge import FSDPMemTracker, MemTracker
from tidegauge._torch import compat_fsdp, fsdp_patches
from torch import nn
from torch.distributed._composable import checkpoint
from torch.distributed.fsdp import fully_shard
from tracked import now

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _world() -> Iterator[None]:
    with world(4):
        yield


def hooks_of(model: nn.Module) -> list[Any]:
    names = ["_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_state_dict_pre_hooks"]
    return [list(getattr(module, name).items()) for module in model.modules() for name in names] + [
        sorted(vars(module)) for module in model.modules()
    ]


def groups_of(model: Any) -> list[Any]:
    modules = [m for m in model.modules() if hasattr(m, "_get_fsdp_state")]
    return [group for m in modules for group in compat_fsdp.groups_of(m._get_fsdp_state())]


def classes() -> list[Any]:
    return [
        patch._owner.__dict__[patch._name] for patch in fsdp_patches._FOR_FSDP._patches.values()
    ]


def test_model_and_classes_are_restored() -> None:
    model, x = shard_all(Net()), torch.randn(8, 64)
    model(x).sum().backward()  # FSDP2 itself sets attributes in the first backward
    hooks, before = hooks_of(model), classes()
    attributes = [sorted(vars(group)) for group in groups_of(model)]
    with FSDPMemTracker(model):
        assert all(a is not b for a, b in zip(classes(), before, strict=True))
        assert hooks_of(model) == hooks
        model(x).sum().backward()
    assert hooks_of(model) == hooks
    assert all(a is b for a, b in zip(classes(), before, strict=True))
    assert [sorted(vars(group)) for group in groups_of(model)] == attributes


def test_group_of_two_modules_works_after_exit() -> None:
    model, x = Net(), torch.randn(8, 64)
    fully_shard([model.norm, model.head], mesh=flat_mesh())
    fully_shard(model, mesh=flat_mesh())
    with FSDPMemTracker(model):
        model(x).sum().backward()
    model(x).sum().backward()


def test_exception_leaves_no_state() -> None:
    model, before = shard_all(Net()), classes()
    tracker = FSDPMemTracker(model)
    with pytest.raises(RuntimeError, match="shapes"), tracker:
        model(torch.randn(8, 3))
    assert classes() == before
    assert tracker._native.anomalies() == (0, "")


def test_trackers_nest_and_follow_each_other() -> None:
    model, x, before = shard_all(Net()), torch.randn(8, 64), classes()
    outer, inner, plain = FSDPMemTracker(model), FSDPMemTracker(model), MemTracker()
    plain.track_external(model)
    with outer, plain:
        with inner, inner:
            model(x).sum().backward()
        assert now(inner) == now(outer)
        assert now(plain)["Parameter"] == now(outer)["Sharded Param"]
        assert now(plain)["Gradient"] == now(outer)["Sharded Grad"]
    assert classes() == before
    with outer:
        model(x).sum().backward()
    assert classes() == before


def test_second_iteration_is_refused_only_if_strict() -> None:
    model, x = shard_all(Net()), torch.randn(8, 64)
    with FSDPMemTracker(model):
        for _ in range(2):
            model(x).sum().backward()
    with FSDPMemTracker(model, strict=True):
        model(x).sum().backward()
        with pytest.raises(NotImplementedError, match=r"^FSDPMemTracker does not support"):
            model(x)


@pytest.mark.parametrize("moment", ["forward", "backward", "reduction", "recompute"])
def test_tracker_may_be_entered_and_left_at_any_moment(moment: str) -> None:
    """One tracker is left and another one entered in the middle of a step."""
    before = classes()
    torch.manual_seed(0)
    model, x = Net(), torch.randn(8, 64)
    if moment == "recompute":
        checkpoint(model.blocks[1])
    shard_all(model)
    old, new = FSDPMemTracker(model), FSDPMemTracker(model)
    calls = []

    def change(*_: Any) -> None:
        calls.append(moment)
        if len(calls) == (2 if moment == "recompute" else 1):
            old.__exit__(None, None, None)
            new.__enter__()

    if moment in ("forward", "recompute"):
        model.blocks[1].wide.register_forward_hook(change)
    elif moment == "backward":
        model.blocks[1].wide.register_full_backward_hook(change)
    else:
        model.blocks[1].wide.weight.register_post_accumulate_grad_hook(change)
    old.__enter__()
    model(x).sum().backward()
    after = now(new)
    new.__exit__(None, None, None)
    assert calls
    assert classes() == before
    # Gradients were reduced in `new`, except those that already existed.
    assert after["Sharded Param"] == after["Sharded Grad"]
    assert not {"Unsharded Param", "Unsharded Grad", "All Gather", "Reduce Scatter"} & set(after)
    for tracker in (old, new):
        assert tracker._native.anomalies() == tracker._native.failures() == (0, "")
