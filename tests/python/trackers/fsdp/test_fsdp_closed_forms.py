# SPDX-License-Identifier: BSD-3-Clause
"""Sizes computed from shapes and the size of the world."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from runs import read_split
from sharded import (
    BLOCK_NUMEL,
    BLOCKS,
    WIDTH,
    Block,
    flat_mesh,
    two_level_mesh,
    world,
)
from tidegauge import FSDPMemTracker
from torch import nn
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker as UpstreamTracker
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from tracked import now, peak

pytestmark = pytest.mark.filterwarnings("ignore")

WORLD = 4
BATCH = 8
FLOAT, HALF = 4, 2
BLOCK = BLOCK_NUMEL * FLOAT
SHARDS = BLOCKS * BLOCK // WORLD
ROW = BATCH * WIDTH * FLOAT
"""bytes of an activation"""


@pytest.fixture(autouse=True)
def _world() -> Iterator[None]:
    with world(WORLD):
        yield


def blocks(**options: Any) -> nn.Sequential:
    """A root without parameters of its own."""
    options = {"mesh": flat_mesh(), **options}
    model = nn.Sequential(*(Block() for _ in range(BLOCKS)))
    for block in model:
        fully_shard(block, **options)
    return fully_shard(model, **options)


def test_peak_of_a_backward() -> None:
    """In the middle block: its own parameters and gradients, the next block's reduction, the
    previous block's gathering, and the activations saved by the first two blocks."""
    model, x = blocks(), torch.randn(BATCH, WIDTH)
    tracker = FSDPMemTracker(model)
    tracker.track_inputs((x,))
    with tracker:
        model(x).sum().backward()
    assert peak(tracker) == {
        "Sharded Param": SHARDS,
        "Unsharded Param": BLOCK,
        "Sharded Grad": BLOCK // WORLD,
        "Unsharded Grad": BLOCK,
        "Activation": 2 * ROW + 2 * FLOAT,
        "Temp": 2 * ROW,
        "All Gather": BLOCK,
        "Reduce Scatter": BLOCK,
        "Inputs": ROW,
        "Total": SHARDS + BLOCK // WORLD + 4 * BLOCK + 5 * ROW + 2 * FLOAT,
    }


def test_gradients_are_temporary_in_upstream_until_the_end_of_backward() -> None:
    figures = []
    for make in (FSDPMemTracker, UpstreamTracker):
        model, x = blocks(), torch.randn(BATCH, WIDTH)
        tracker = make(model)
        tracker.track_inputs((x,))
        with tracker:
            model(x).sum().backward()
        figures.append(peak(tracker))
    mine, theirs = figures
    assert mine["Total"] == theirs["Total"]
    assert (mine["Unsharded Grad"], mine["Temp"]) == (BLOCK, 2 * ROW)
    assert (theirs.get("Unsharded Grad", 0), theirs["Temp"]) == (0, BLOCK + 2 * ROW)


def test_unshard_by_the_user() -> None:
    model = blocks()
    with FSDPMemTracker(model) as tracker:
        model[0].unshard()
        assert now(tracker)["Unsharded Param"] == BLOCK
        assert "Activation" not in now(tracker)
        model[0].reshard()
        assert now(tracker) == {"Sharded Param": SHARDS, "Total": SHARDS}
        unit = tracker.units()[0]
    assert [each["reason"] for each in unit["gatherings"]] == ["user"]
    assert unit["gatherings"][0]["released_ns"] is not None


def test_parameters_unsharded_by_the_user_are_activations_in_upstream() -> None:
    model = blocks()
    with UpstreamTracker(model) as tracker:
        model[0].unshard()
        assert now(tracker)["Activation"] == BLOCK


def test_accumulation_without_sync_keeps_whole_gradients() -> None:
    model, x = blocks(), torch.randn(BATCH, WIDTH)
    model.set_requires_gradient_sync(False)
    with FSDPMemTracker(model) as tracker:
        model(x).sum().backward()
        assert now(tracker)["Unsharded Grad"] == BLOCKS * BLOCK
        assert "Sharded Grad" not in now(tracker)
        model.set_requires_gradient_sync(True)
        model(x).sum().backward()
        assert now(tracker)["Sharded Grad"] == SHARDS
        assert "Unsharded Grad" not in now(tracker)


def test_accumulation_in_the_reduce_dtype() -> None:
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    model, x = blocks(mp_policy=policy), torch.randn(BATCH, WIDTH)
    model.set_requires_gradient_sync(False)
    with FSDPMemTracker(model) as tracker:
        model(x).sum().backward()
        assert now(tracker)["Unsharded Grad"] == BLOCKS * BLOCK  # float, not half
        model[0].unshard()
        assert now(tracker)["Unsharded Param"] == BLOCK_NUMEL * HALF


def test_deferred_all_reduce_keeps_partial_sums() -> None:
    model, x = blocks(mesh=two_level_mesh()), torch.randn(BATCH, WIDTH)
    model.set_requires_all_reduce(False)
    with FSDPMemTracker(model) as tracker:
        model(x).sum().backward()
        assert now(tracker)["Reduce Scatter"] == BLOCKS * BLOCK // 2  # shards of 2 ranks
        assert {
            category for unit in tracker.units() for category in unit["now"][torch.device("cpu")]
        } == {"Sharded Param", "All Reduce"}
        model.set_requires_all_reduce(True)
        model(x).sum().backward()
        assert now(tracker)["Sharded Grad"] == BLOCKS * BLOCK // 2
        assert "Reduce Scatter" not in now(tracker)


def test_shards_of_a_smaller_mesh_after_forward() -> None:
    model, x = blocks(reshard_after_forward=2), torch.randn(BATCH, WIDTH)
    with FSDPMemTracker(model) as tracker:
        loss = model(x).sum()
        assert now(tracker)["Sharded Param"] == SHARDS + BLOCKS * BLOCK // 2
        kept = [unit["now"][torch.device("cpu")]["Post-Forward Shard"] for unit in tracker.units()]
        assert kept == [BLOCK // 2] * BLOCKS
        assert {unit["state"] for unit in tracker.units()} == {"post-forward sharded"}
        loss.backward()
        assert now(tracker)["Sharded Param"] == SHARDS


def test_reasons_of_gatherings() -> None:
    model, x = blocks(), torch.randn(BATCH, WIDTH)
    with FSDPMemTracker(model) as tracker:
        model(x).sum().backward()
    reasons = [[each["reason"] for each in unit["gatherings"]] for unit in tracker.units()]
    assert reasons == [["forward", "prefetch"], ["forward", "prefetch"], ["forward", "backward"]]
    assert [unit["reduce_count"] for unit in tracker.units()] == [1] * BLOCKS
    assert [unit["name"] for unit in tracker.units()] == ["0", "1", "2"]


def test_gradients_from_before_entry_are_labelled() -> None:
    model, x = blocks(), torch.randn(BATCH, WIDTH)
    model(x).sum().backward()
    with FSDPMemTracker(model) as tracker:
        assert now(tracker)["Sharded Grad"] == SHARDS


def test_entry_between_forward_and_backward() -> None:
    model, x = blocks(reshard_after_forward=False), torch.randn(BATCH, WIDTH)
    loss = model(x).sum()
    with FSDPMemTracker(model) as tracker:
        assert now(tracker)["Unsharded Param"] == BLOCKS * BLOCK
        loss.backward()
        assert now(tracker)["Sharded Grad"] == SHARDS
        assert "Unsharded Param" not in now(tracker)


def test_module_sharded_within_the_context() -> None:
    outer, inner = blocks(), nn.Linear(WIDTH, WIDTH, bias=False)
    with FSDPMemTracker(outer) as tracker:
        fully_shard(inner, mesh=flat_mesh())
        assert now(tracker)["Sharded Param"] == SHARDS + WIDTH * WIDTH * FLOAT // WORLD


def test_ignored_parameters_count_as_unsharded() -> None:
    model = nn.Sequential(Block(), nn.Linear(WIDTH, WIDTH, bias=False))
    fully_shard(model, mesh=flat_mesh(), ignored_params={model[1].weight})
    x = torch.randn(BATCH, WIDTH)
    with FSDPMemTracker(model) as tracker:
        whole = WIDTH * WIDTH * FLOAT
        assert now(tracker)["Unsharded Param"] == whole
        model(x).sum().backward()
        assert now(tracker)["Unsharded Grad"] == whole


def test_key_orders_and_snapshots_equal_upstream() -> None:
    def states(make: Any) -> dict[str, dict[str, list[dict[str, int]]]]:
        torch.manual_seed(0)
        model, x = blocks(), torch.randn(BATCH, WIDTH)
        tracker = make(model)
        tracker.track_inputs((x,))
        with tracker:
            model(x).sum().backward()
        return {
            stats.mod_fqn: {
                state.value: [read_split(snapshot) for snapshot in snapshots]
                for state, snapshots in stats.snapshots.items()
            }
            for stats in tracker.memory_tracking.values()
        }

    mine, theirs = states(FSDPMemTracker), states(UpstreamTracker)
    assert list(mine) == list(theirs) == [f"FSDPSequential.{i}" for i in range(BLOCKS)]
    bias = WIDTH * FLOAT
    for name in mine:
        assert list(mine[name]) == list(theirs[name])
        # Upstream itself keeps the last gradient of the block alive while it takes a snapshot.
        last = theirs[name]["After Post-Backward"][0]
        assert last.pop("Unsharded Grad") == bias
        last["Total"] -= bias
        for state in mine[name]:
            if not state.startswith("Peak"):
                assert mine[name][state] == theirs[name][state]
