# SPDX-License-Identifier: BSD-3-Clause
"""Real collectives between two processes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch.multiprocessing
from torch import nn

HERE = Path(__file__).parent
WORLD = 2


def run_rank(rank: int, folder: str) -> None:
    sys.path[:0] = [str(HERE), str(HERE.parent / "mem")]
    import torch
    import torch.distributed as dist
    from fsdp_cases import CASES
    from runs import read_split
    from tidegauge import FSDPMemTracker
    from torch.distributed.fsdp import fully_shard

    from sharded import flat_mesh, run

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=WORLD
    )
    result: dict[str, Any] = {}
    for name in ("plain", "mixed_precision", "checkpoint"):
        tracked, untracked = run(CASES[name], FSDPMemTracker), run(CASES[name], None)
        result[name] = {
            "totals": [mark["Total"] for mark in tracked.marks],
            "allocated": tracked.allocated,
            "peaks": [tracked.peak["Total"], tracked.allocated_peak],
            "is_same": all(map(torch.equal, tracked.parameters, untracked.parameters)),
        }
    odd = fully_shard(nn.Linear(4, 3, bias=False), mesh=flat_mesh())
    with FSDPMemTracker(odd) as tracker:
        odd(torch.ones(1, 4)).sum().backward()
        result["odd"] = read_split(tracker.get_tracker_snapshot())
        result["gathered"] = tracker.gather()
    Path(folder, f"{rank}.json").write_text(json.dumps(result))
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("gloo")
    torch.multiprocessing.spawn(run_rank, (str(folder),), nprocs=WORLD)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(WORLD)]


@pytest.mark.parametrize("name", ["plain", "mixed_precision", "checkpoint"])
def test_totals_on_gloo_are_those_of_the_allocator(ranks: list[dict[str, Any]], name: str) -> None:
    for rank in ranks:
        assert rank[name]["totals"] == rank[name]["allocated"]
        mine, allocated = rank[name]["peaks"]
        assert mine == allocated
        assert rank[name]["is_same"]


def test_figures_of_all_ranks_come_to_the_first(ranks: list[dict[str, Any]]) -> None:
    """Of 3 rows rank 0 has 2 and rank 1 has 1, padded to 2: equal parameters and gradients."""
    first, second = ranks
    assert first["odd"]["Sharded Param"] == second["odd"]["Sharded Param"] == 2 * 4 * 4
    assert second["gathered"] is None
    entry = first["gathered"]["cpu"]["Sharded Param"]
    assert entry == {"min": 32, "min_rank": 0, "max": 32, "max_rank": 0, "all": [32, 32]}
