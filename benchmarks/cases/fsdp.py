# SPDX-License-Identifier: BSD-3-Clause
"""FSDPMemTracker on FSDP2.

With a fake group of 8: all the work of one rank without communication, in CPU time. With gloo and
two processes: in wall time, because a step waits for the other process.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing
from measure import Enter, Ratio, measure
from tidegauge import FSDPMemTracker
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker as UpstreamTracker
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from cases.mem_tracker import OURS, UPSTREAM

WORLD = 8


class Training:
    """One step; upstream requires a reset of its statistics before each."""

    def __init__(self, layers: int, width: int, batch: int, mesh: DeviceMesh) -> None:
        self.model = nn.Sequential(
            *(
                nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
                for _ in range(layers)
            )
        )
        for block in self.model:
            fully_shard(block, mesh=mesh)
        fully_shard(self.model, mesh=mesh)
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.x = torch.randn(batch, width)
        self._reset: Callable[[], object] = bool

    def step(self) -> None:
        self._reset()
        self.optimizer.zero_grad()
        self.model(self.x).sum().backward()
        self.optimizer.step()

    def within(self, make_tracker: Callable[..., Any]) -> Enter:
        @contextmanager
        def enter() -> Iterator[object]:
            tracker = make_tracker(self.model, self.optimizer)
            tracker.track_inputs((self.x,))
            if make_tracker is UpstreamTracker:
                self._reset = tracker.reset_mod_stats
            with tracker:
                yield tracker
            self._reset = bool

        return enter


def _measure(
    case: str,
    training: Training,
    *,
    bar: float,
    steps: int,
    warm_up: int = 2,
    clock: Callable[[], float] = time.thread_time,
) -> list[Ratio]:
    """Only two rounds of upstream: it is so slow that they take as long as all of ours."""
    return measure(
        case,
        training.step,
        {
            OURS: (training.within(FSDPMemTracker), bar),
            UPSTREAM: (training.within(UpstreamTracker), None),
        },
        plain=nullcontext,
        steps=steps,
        warm_up=warm_up,
        rounds_of={UPSTREAM: 2},
        clock=clock,
    )


def run() -> list[Ratio]:
    return _run_over_fake_group() + _run_over_gloo()


def _run_over_gloo() -> list[Ratio]:
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(_run_rank, (folder,), nprocs=2)
        return [Ratio(**each) for each in json.loads(Path(folder, "ratios.json").read_text())]


def _run_rank(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    ratios = _measure(
        "FSDPMemTracker, FSDP2 of 8 blocks of 2 x Linear(256, 256), gloo, 2 processes, wall time",
        Training(8, 256, 32, init_device_mesh("cpu", (2,))),
        bar=1.10,
        steps=5,
        clock=time.perf_counter,
    )
    if rank == 0:
        Path(folder, "ratios.json").write_text(json.dumps([asdict(each) for each in ratios]))
    dist.destroy_process_group()


def _run_over_fake_group() -> list[Ratio]:
    dist.init_process_group("fake", rank=0, world_size=WORLD, store=FakeStore())
    try:
        mesh = init_device_mesh("cpu", (WORLD,))
        ratios = _measure(
            "FSDPMemTracker, FSDP2 of 8 blocks of 2 x Linear(256, 256), fake group of 8",
            Training(8, 256, 32, mesh),
            bar=1.12,
            steps=5,
        )
        with FakeTensorMode():
            ratios += _measure(
                "FSDPMemTracker under FakeTensorMode, 32 blocks of width 4,096, fake group of 8",
                Training(32, 4096, 32, mesh),
                bar=1.10,
                steps=1,
                warm_up=1,
            )
        return ratios
    finally:
        dist.destroy_process_group()
