# SPDX-License-Identifier: BSD-3-Clause
"""Differences from upstream and the right figures; docs/differences.md has the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from differences import is_fixed_upstream
from fsdp_cases import two_groups
from runs import Split
from sharded import BLOCK_NUMEL, BLOCKS, WIDTH, Net, shard_all, two_level_mesh, world
from tidegauge import FSDPMemTracker
from torch.distributed._composable import checkpoint
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker as UpstreamTracker
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch_version import ONE_GROUP_PER_MODULE
from tracked import now, peak

pytestmark = pytest.mark.filterwarnings("ignore")

WORLD, BATCH, FLOAT, HALF = 4, 8, 4, 2
BLOCK = BLOCK_NUMEL * FLOAT
ROW = BATCH * WIDTH * FLOAT


@pytest.fixture(autouse=True)
def _world() -> Iterator[None]:
    with world(WORLD):
        yield


def both(
    make: Callable[[], Any], work: Callable[[Any, Any, torch.Tensor], Split]
) -> tuple[Split, Split]:
    """The results of `work(tracker, model, x)` with ours and upstream's, both at the first step."""
    figures = []
    for tracker_class in (FSDPMemTracker, UpstreamTracker):
        torch.manual_seed(0)
        model, x = make(), torch.randn(BATCH, WIDTH)
        tracker = tracker_class(model)
        tracker.track_inputs((x,))
        with tracker:
            figures.append(work(tracker, model, x))
    return figures[0], figures[1]


def blocks(**options: Any) -> Net:
    return shard_all(Net(), **options)


def test_states_of_an_optimizer_that_was_not_passed() -> None:
    def work(tracker: Any, model: Any, x: torch.Tensor) -> Split:
        optimizer = torch.optim.Adam(model.parameters(), foreach=False)
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        return now(tracker)

    mine, theirs = both(blocks, work)
    # Two per parameter (head and norm are sharded unevenly), and a step.
    parameters = BLOCKS * 4 + 4
    rows = BLOCKS * BLOCK_NUMEL // WORLD + 2 * WIDTH // WORLD + 2 * WIDTH + 2
    states = 2 * rows * FLOAT + parameters * FLOAT
    assert mine["OptState"] == states
    assert "Activation" not in mine
    assert "OptState" not in theirs
    assert theirs["Activation"] == states


def test_whole_parameters_within_the_forward() -> None:
    def work(tracker: Any, model: Any, x: torch.Tensor) -> Split:
        with torch.no_grad():
            model(x)
        return peak(tracker)

    mine, theirs = both(blocks, work)
    assert mine["Total"] == theirs["Total"]
    head = (5 * WIDTH + 5 + 2 * WIDTH) * FLOAT
    padded_head = (8 * WIDTH + 8 + 2 * WIDTH) * FLOAT
    assert mine["Unsharded Param"] == padded_head + BLOCK
    assert head < padded_head
    if is_fixed_upstream(since=(2, 15)):
        assert theirs == mine
        return
    assert mine["Activation"] == theirs["Activation"] - BLOCK
    assert theirs["Unsharded Param"] == padded_head


def test_wrapped_checkpoint_has_states_of_the_recompute() -> None:
    def states(tracker_class: Any, wrap: bool) -> set[str]:
        model, x = Net(), torch.randn(BATCH, WIDTH)
        for i, block in enumerate(model.blocks):
            if wrap:
                model.blocks[i] = checkpoint_wrapper(block)
            else:
                checkpoint(block)
        shard_all(model)
        with tracker_class(model) as tracker:
            model(x).sum().backward()
        return {state.value for state in tracker.memory_tracking[model.blocks[0]].snapshots}

    recompute = {"Pre-Forward AC", "Post-Forward AC"}
    assert recompute <= states(FSDPMemTracker, wrap=False)
    assert recompute <= states(UpstreamTracker, wrap=False)
    assert recompute <= states(FSDPMemTracker, wrap=True)
    assert not recompute & states(UpstreamTracker, wrap=True)


def test_reset_between_forward_and_backward() -> None:
    for tracker_class in (FSDPMemTracker, UpstreamTracker):
        model, x = blocks(), torch.randn(BATCH, WIDTH)
        tracker = tracker_class(model)
        with tracker:
            loss = model(x).sum()
            tracker.reset_mod_stats()
            if tracker_class is UpstreamTracker:
                with pytest.raises(KeyError):
                    loss.backward()
            else:
                loss.backward()
                assert now(tracker)["Sharded Grad"] == now(tracker)["Sharded Param"]


def test_partial_sums_of_a_deferred_all_reduce() -> None:
    def work(tracker: Any, model: Any, x: torch.Tensor) -> Split:
        model.set_requires_all_reduce(False)
        model(x).sum().backward()
        return now(tracker)

    mine, theirs = both(lambda: blocks(mesh=two_level_mesh()), work)
    head = (6 * WIDTH + 6 + 2 * WIDTH) * FLOAT // 2
    assert mine["Reduce Scatter"] == theirs["Temp"] == BLOCKS * BLOCK // 2 + head
    assert "Temp" not in mine
    assert "Reduce Scatter" not in theirs


def test_shards_of_a_smaller_mesh() -> None:
    def work(tracker: Any, model: Any, x: torch.Tensor) -> Split:
        loss = model(x).sum()
        split = now(tracker)
        loss.backward()
        return split

    mine, theirs = both(lambda: blocks(reshard_after_forward=2), work)
    assert mine["Total"] == theirs["Total"]
    assert mine["Sharded Param"] - theirs["Sharded Param"] == (
        theirs["Activation"] - mine["Activation"]
    )
    assert mine["Sharded Param"] - theirs["Sharded Param"] >= BLOCKS * BLOCK // 2


def test_gradients_accumulated_in_another_dtype() -> None:
    def work(tracker: Any, model: Any, x: torch.Tensor) -> Split:
        model.set_requires_gradient_sync(False)
        model(x).float().sum().backward()
        return now(tracker)

    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    mine, theirs = both(lambda: blocks(mp_policy=policy), work)
    grads = BLOCKS * BLOCK + (5 * WIDTH + 5 + 2 * WIDTH) * FLOAT
    assert mine["Unsharded Grad"] == grads
    assert "Temp" not in mine
    if is_fixed_upstream(since=(2, 15)):
        assert theirs == mine
        return
    assert theirs["Temp"] == grads
    assert "Unsharded Grad" not in theirs


@ONE_GROUP_PER_MODULE.skips
def test_two_param_groups_of_one_module() -> None:
    x = torch.randn(BATCH, WIDTH)
    with pytest.raises(AssertionError, match="param group"), UpstreamTracker(two_groups()):
        pass
    model = two_groups()
    with FSDPMemTracker(model) as tracker:
        model(x).sum().backward()
        units = {unit["name"]: unit["now"][torch.device("cpu")] for unit in tracker.units()}
    assert sorted(units)[:3] == ["", "blocks.0", "blocks.0#2"]
    weights, biases = 2 * WIDTH * WIDTH * FLOAT, 2 * WIDTH * FLOAT
    sizes = sorted((units["blocks.0"]["Sharded Param"], units["blocks.0#2"]["Sharded Param"]))
    assert sizes == [biases // 2, weights // WORLD]
