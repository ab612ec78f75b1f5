# SPDX-License-Identifier: BSD-3-Clause
"""Trains a small pipeline with each schedule of torch.

As a program, `pipeline_run.py FOLDER RANK WORLD_SIZE`: one rank, on gloo.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from one_thread_gloo import init_one_thread_gloo, settle
from tidegauge import MemTracker
from torch import nn
from torch.distributed.pipelining import PipelineStage, schedules

SCHEDULES = (
    *("ScheduleGPipe", "Schedule1F1B", "ScheduleLoopedBFS", "ScheduleInterleaved1F1B"),
    *("ScheduleInterleavedZeroBubble", "ScheduleZBVZeroBubble", "ScheduleDualPipeV"),
)
_V_SHAPED = ("ScheduleZBVZeroBubble", "ScheduleDualPipeV")
_WIDTH, _HIDDEN, _ROWS, _MICROBATCHES = 16, 48, 8, 6


class _Stage(nn.Module):
    """The first one widens, the last one narrows: inputs differ between the ends and the middle."""

    def __init__(self, is_first: bool, is_last: bool) -> None:
        super().__init__()
        self.one = nn.Linear(_WIDTH if is_first else _HIDDEN, _HIDDEN)
        self.two = nn.Linear(_HIDDEN, 1 if is_last else _HIDDEN)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.two(self.one(x).tanh())


def train(name: str, rank: int, world_size: int) -> list[dict[str, int]]:
    """The split at the peak and after two steps."""
    schedule_class = getattr(schedules, name)
    is_single = issubclass(schedule_class, schedules.PipelineScheduleSingle)
    count = world_size if is_single else 2 * world_size
    own = [rank] if is_single else [rank, world_size + rank]
    if name in _V_SHAPED:
        own = [rank, count - 1 - rank]
    modules = [_Stage(index == 0, index == count - 1) for index in own]
    stages = [
        PipelineStage(module, index, count, torch.device("cpu"))
        for module, index in zip(modules, own, strict=True)
    ]
    schedule: Any = schedule_class(
        stages[0] if is_single else stages, _MICROBATCHES, loss_fn=nn.functional.mse_loss
    )
    optimizer = torch.optim.AdamW(
        [each for module in modules for each in module.parameters()], foreach=True
    )
    inputs = (torch.randn(_MICROBATCHES * _ROWS, _WIDTH),) if 0 in own else ()
    target = {"target": torch.randn(_MICROBATCHES * _ROWS, 1)} if count - 1 in own else {}
    schedule.step(*inputs, **target)  # infers the shapes
    settle()
    tracker = MemTracker()
    tracker.track_external(*modules, optimizer, *inputs, *target.values())
    with tracker:
        for _ in range(2):
            schedule.step(*inputs, **target)
            settle()
            optimizer.step()
            optimizer.zero_grad()
        return [
            tracker.get_tracker_snapshot(kind)[torch.device("cpu")] for kind in ("peak", "current")
        ]


def main() -> None:
    folder, rank, world_size = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    init_one_thread_gloo(dist.FileStore(str(folder / "store"), world_size), rank, world_size)
    found = {name: train(name, rank, world_size) for name in SCHEDULES}
    (folder / f"rank{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
