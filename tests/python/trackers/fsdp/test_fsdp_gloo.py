# SPDX-License-Identifier: BSD-3-Clause
"""Real collectives between two and four processes."""

from __future__ import annotations

import json
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch.multiprocessing
from torch import nn

SUPPORT = Path(__file__).parents[2] / "support"
NAMES = ["plain", "mixed_precision", "checkpoint", "hsdp", "accumulation", "sums_divided"]
FLOAT = 4


def run_rank(rank: int, size: int, folder: str) -> None:
    sys.path.insert(0, str(SUPPORT))
    import torch
    import torch.distributed as dist
    from fsdp_cases import CASES
    from one_thread_gloo import init_one_thread_gloo
    from runs import read_split
    from sharded import flat_mesh, run
    from tidegauge import FSDPMemTracker
    from torch.distributed.fsdp import fully_shard

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    init_one_thread_gloo(dist.FileStore(f"{folder}/store", size), rank, size)
    result: dict[str, Any] = {}
    for name in NAMES:
        tracked, untracked = run(CASES[name], FSDPMemTracker), run(CASES[name], None)
        whole = run(CASES[name], partial(FSDPMemTracker, allocator=True))
        result[name] = {
            "totals": [mark["Total"] for mark in tracked.marks],
            "allocated": tracked.allocated,
            "peaks": [tracked.peak["Total"], tracked.allocated_peak_of_all],
            "peaks_with_channel": [whole.peak["Total"], whole.allocated_peak_of_all],
            "is_same": all(map(torch.equal, tracked.parameters, untracked.parameters)),
        }

    odd = fully_shard(nn.Linear(4, 3, bias=False), mesh=flat_mesh())
    optimizer = torch.optim.Adam(odd.parameters(), foreach=False)
    with FSDPMemTracker(odd, optimizer) as tracker:
        odd(torch.ones(1, 4)).sum().backward()
        optimizer.step()
        before = read_split(tracker.get_tracker_snapshot("peak"))
        result["odd"] = read_split(tracker.get_tracker_snapshot())
        result["gathered"] = tracker.gather("current")
        result["is_unseen"] = before == read_split(tracker.get_tracker_snapshot("peak"))

    # Only the last rank has a different model.
    model = fully_shard(nn.Linear(4, 8 if rank == size - 1 else 4), mesh=flat_mesh())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with FSDPMemTracker(model) as tracker:
            result["of_different_models"] = tracker.gather("current")
    result["warnings"] = [str(each.message) for each in caught]

    # The process group is destroyed while the tracker is entered.
    model = fully_shard(nn.Linear(4, 4), mesh=flat_mesh())
    with FSDPMemTracker(model) as tracker:
        model(torch.ones(1, 4)).sum().backward()
        dist.destroy_process_group()
        try:
            tracker.gather()
        except RuntimeError as error:
            result["without_group"] = str(error)
    result["after_group"] = read_split(tracker.get_tracker_snapshot())
    Path(folder, f"{rank}.json").write_text(json.dumps(result))


Ranks = list[dict[str, Any]]


@pytest.fixture(scope="module", params=[2, 4])
def ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ranks:
    folder = tmp_path_factory.mktemp("gloo")
    torch.multiprocessing.spawn(run_rank, (request.param, str(folder)), nprocs=request.param)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(request.param)]


@pytest.mark.parametrize("name", NAMES)
def test_totals_on_gloo_equal_the_allocator(ranks: Ranks, name: str) -> None:
    """gloo's threads have their own buffers at unpredictable times: only the allocator channel sees
    them."""
    for rank in ranks:
        assert rank[name]["totals"] == rank[name]["allocated"]
        mine, allocated = rank[name]["peaks"]
        assert 0.6 * allocated < mine <= allocated
        mine, allocated = rank[name]["peaks_with_channel"]
        assert mine == allocated
        assert rank[name]["is_same"]


def test_figures_of_all_ranks_are_gathered_on_the_first(ranks: Ranks) -> None:
    """The first ranks have more of 3 rows. Shards are padded to the largest, states are not."""
    rows = [2, 1] if len(ranks) == 2 else [1, 1, 1, 0]
    row, step = 4 * FLOAT, FLOAT
    states = [2 * each * row + step for each in rows]
    assert [rank["odd"]["OptState"] for rank in ranks] == states
    assert all(rank["gathered"] is None for rank in ranks[1:])
    gathered = ranks[0]["gathered"]["cpu"]
    assert gathered["OptState"] == {
        "min": min(states),
        "min_rank": states.index(min(states)),
        "max": max(states),
        "max_rank": 0,
        "all": states,
    }
    assert gathered["Sharded Param"]["all"] == [max(rows) * row] * len(ranks)
    assert gathered["Total"]["all"] == [rank["odd"]["Total"] for rank in ranks]


def test_gathering_of_figures_is_not_tracked(ranks: Ranks) -> None:
    assert all(rank["is_unseen"] for rank in ranks)


def test_ranks_with_different_models_are_reported(ranks: Ranks) -> None:
    last = len(ranks) - 1
    assert len(ranks[0]["warnings"]) == 1
    assert f"unit 'FSDPLinear' has 40 parameters on rank {last}, 20 on 0" in ranks[0]["warnings"][0]
    assert all(rank["warnings"] == [] for rank in ranks[1:])
    sizes = ranks[0]["of_different_models"]["cpu"]["Sharded Param"]["all"]
    assert sizes[-1] > sizes[0] == min(sizes)


def test_process_group_may_be_destroyed_while_the_tracker_is_entered(ranks: Ranks) -> None:
    for rank in ranks:
        assert "Call it before destroy_process_group" in rank["without_group"]
        assert rank["after_group"]["Sharded Grad"] == rank["after_group"]["Sharded Param"]
