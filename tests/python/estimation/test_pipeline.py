# SPDX-License-Identifier: BSD-3-Clause
"""Pipeline parallelism of a plan: stages, ranks and errors."""

from __future__ import annotations

import re

import pytest
from tidegauge.allocator import find_device
from tidegauge.estimation import Estimate, Estimator, Plan, estimate, load_contract
from tidegauge.estimation.pipeline import divide_blocks, stages_of
from tidegauge.estimation.plan import SCHEDULES
from tidegauge.planning.planner import find_plan
from torch_version import LATE_PIPELINE_BUFFERS

WIDTH, WORDS = 64, 120
BLOCK = 2 * WIDTH * WIDTH * 4
ENDS = WORDS * WIDTH * 4  # the embedding; as large is the head


def parameters_of(found: Estimate) -> int:
    held: int = found.peak.categories["Parameter"]
    return held


@pytest.mark.parametrize(
    ("schedule", "blocks", "ends"),
    [
        ("gpipe", [1, 2, 2, 1], [1, 0, 0, 1]),
        ("1f1b", [1, 2, 2, 1], [1, 0, 0, 1]),
        ("interleaved", [1, 2, 2, 1], [1, 0, 0, 1]),
        ("zbv", [1, 2, 2, 1], [2, 0, 0, 0]),
    ],
)
def test_each_rank_has_the_parameters_of_its_stages(
    model_file: str, schedule: str, blocks: list[int], ends: list[int]
) -> None:
    if SCHEDULES[schedule].stages_per_rank == 2:
        layers = 8
        blocks = [2] * 4
    else:
        layers = 6
    for rank in range(4):
        found = estimate(
            model_file, pp=4, schedule=schedule, settings={"layers": layers}, rank=rank
        )
        assert parameters_of(found) == blocks[rank] * BLOCK + ends[rank] * ENDS


def test_ranks_of_all_places_are_simulated(model_file: str) -> None:
    found = estimate(model_file, pp=3, fsdp=2, rank="all")
    assert found.world_size == 6
    assert [rank.like_ranks for rank in found.ranks] == [(0, 1), (2, 3), (4, 5)]
    assert "3 stages" in found.layout
    worst = max(found.ranks, key=lambda rank: rank.needed_bytes)
    assert found.rank == worst.rank


def test_gpipe_keeps_all_microbatches_and_1f1b_as_many_as_ranks(model_file: str) -> None:
    def peak(schedule: str, count: int) -> int:
        found = estimate(model_file, pp=2, schedule=schedule, microbatches=count, rank=0)
        return found.peak.total_bytes

    tokens = 4 * 16 * 8
    sent = 0 if LATE_PIPELINE_BUFFERS else 4 * 16 * 64 * 4  # kept until the end of the step
    microbatch = peak("gpipe", 12) - peak("gpipe", 8)
    assert microbatch > 4 * tokens
    assert peak("gpipe", 16) - peak("gpipe", 12) == microbatch
    assert peak("1f1b", 16) - peak("1f1b", 12) == 4 * (tokens + sent)


def test_blocks_are_divided_evenly() -> None:
    assert divide_blocks(8, 4) == ((0, 1), (2, 3), (4, 5), (6, 7))
    assert [len(each) for each in divide_blocks(10, 4)] == [2, 3, 3, 2]
    assert [len(each) for each in divide_blocks(7, 4)] == [2, 2, 2, 1]
    assert [len(each) for each in divide_blocks(3, 2)] == [2, 1]


def test_stages_of_a_rank_follow_the_schedule() -> None:
    assert stages_of(Plan(pp=4), 2) == [2]
    assert stages_of(Plan(pp=4, schedule="interleaved"), 1) == [1, 5]
    assert stages_of(Plan(pp=4, schedule="zbv"), 1) == [1, 6]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pp": 0}, "invalid pp=0, microbatches=0 (expected at least 1 each)"),
        ({"pp": 2, "schedule": "1b1f"}, "invalid schedule '1b1f': expected gpipe, 1f1b,"),
        ({"schedule": "gpipe"}, "schedule requires pp, the number of ranks of the pipeline"),
        ({"microbatches": 2}, "microbatches requires pp"),
        ({"pp": 2, "dp": 2}, "dp=2 and pp=2 are mutually exclusive; use hsdp=2x1"),
    ],
)
def test_impossible_pipelines_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Plan(**options)  # type: ignore[arg-type]


def test_too_few_blocks_are_refused(model_file: str) -> None:
    with pytest.raises(ValueError, match=r"needs 8 stages, but .* has 3 blocks"):
        estimate(model_file, pp=4, schedule="zbv")


def test_step_of_a_rank_is_recorded(model_file: str) -> None:
    with Estimator(load_contract(model_file), rank="1") as estimator:
        step = estimator.step_of(estimator.estimate(Plan(pp=3, ac="full")))
        assert [block.name for block in step.blocks] == ["stages.0.model.blocks.1"]


def test_pipelines_are_not_planned(model_file: str) -> None:
    with (
        Estimator(load_contract(model_file)) as estimator,
        pytest.raises(ValueError, match="pp=2 cannot be planned"),
    ):
        find_plan(estimator, Plan(pp=2), find_device("h100-80g"))
