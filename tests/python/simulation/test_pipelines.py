# SPDX-License-Identifier: BSD-3-Clause
"""All schedules of torch.distributed.pipelining: each rank equals that of real processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pipeline_run
import pytest
import torch
from processes import run_ranks
from tidegauge import simulate
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch_version import NO_PIPELINE_SHAPES

pytestmark = [pytest.mark.filterwarnings("ignore"), NO_PIPELINE_SHAPES.skips]

RANKS = 3


@pytest.fixture(scope="module")
def real_ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("pipelines")
    run_ranks(Path(pipeline_run.__file__), RANKS, lambda rank: [str(folder), str(rank), str(RANKS)])
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(RANKS)]


@pytest.mark.parametrize("schedule", pipeline_run.SCHEDULES)
def test_bytes_equal_those_of_real_processes(
    schedule: str, real_ranks: list[dict[str, Any]]
) -> None:
    for rank, real in enumerate(real_ranks):
        with simulate(world_size=RANKS, rank=rank):
            assert pipeline_run.train(schedule, rank, RANKS) == real[schedule]


def run_gpipe(rank: int, layer: nn.Module, world_size: int = 2) -> tuple[str, ...]:
    with simulate(world_size=world_size, rank=rank) as simulation:
        stage = PipelineStage(layer, rank, world_size, torch.device("cpu"))
        schedule = ScheduleGPipe(stage, 2, loss_fn=nn.functional.mse_loss)
        x = torch.ones(4, 8)
        schedule.step(*([] if rank else [x]), target=x if rank == world_size - 1 else None)
        return simulation.notes


def test_notes_say_where_shapes_come_from() -> None:
    with simulate():
        layer = nn.Linear(8, 8)
    assert run_gpipe(0, layer) == ()
    assert "Stage 1 receives what stage 0 sent in an earlier simulation" in run_gpipe(1, layer)[0]


def test_other_pipeline_forgets_the_shapes_of_the_one_before() -> None:
    with simulate():
        narrow, wide = nn.Linear(8, 8), nn.Linear(8, 16)
    for rank in range(3):
        run_gpipe(rank, narrow, 3)
    run_gpipe(0, wide, 3)
    with pytest.raises(RuntimeError, match="stage 2 of a pipeline asks its neighbours"):
        run_gpipe(2, narrow, 3)
