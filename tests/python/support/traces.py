# SPDX-License-Identifier: BSD-3-Clause
"""Traces whose numbers can be checked by eye, and output without varying parts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from tidegauge import FSDPMemTracker, MemTracker, Recorder
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore

FACTS = {
    "command": "python train.py",
    "host": "harbour",
    "pid": "42",
    "started": "2026-01-31T12:00:00Z",
    "torch_version": "2.13.0",
    "tidegauge_version": "0.1.0",
}


def name_devices(value: Any) -> Any:
    """Figures of a tracker with devices as text, as figures of a trace have them."""
    if isinstance(value, torch.device):
        return str(value)
    if isinstance(value, dict):
        return {name_devices(key): name_devices(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(name_devices, value))
    return value


class Net(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 64)) for _ in range(2)
        )
        self.head = nn.Linear(64, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


def record_training(path: Path, *, width: int = 256, steps: int = 3, **facts: str) -> str:
    """SGD with momentum; batches of 32 rows."""
    recorder = Recorder(path, facts={**FACTS, **facts})
    tracker = MemTracker(record=recorder)
    with tracker:
        model = Net(width)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        tracker.track_external(optimizer)
        for _ in range(steps):
            model(torch.randn(32, 64)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        del model, optimizer
    recorder.close()
    return path.name


def record_all(folder: Path) -> Path:
    """Before and after a change, two ranks, and a sharded run."""
    record_training(folder / "before.tide")
    record_training(folder / "after.tide", width=320)
    for rank in (0, 1):
        path = folder / f"run.rank{rank}.tide"
        record_training(path, width=256 + 64 * rank, rank=str(rank), world_size="2")
    record_sharded_training(folder / "sharded.tide")
    return folder


def record_sharded_training(path: Path) -> str:
    """FSDP2 on rank 0 of a fake world of 4; the units are both blocks and the rest."""
    dist.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
    try:
        model, optimizer = make_sharded()
        recorder = Recorder(path, facts={**FACTS, "world_size": "4"})
        with FSDPMemTracker(model, optimizer, record=recorder):
            for _ in range(2):
                train_sharded(model, optimizer)
        recorder.close()
    finally:
        dist.destroy_process_group()
    return path.name


def make_sharded() -> tuple[FSDPModule, torch.optim.Optimizer]:
    mesh = init_device_mesh("cpu", (4,))
    model = Net(256)
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    sharded = fully_shard(model, mesh=mesh)
    return sharded, torch.optim.SGD(model.parameters(), lr=0.1)


def train_sharded(model: FSDPModule, optimizer: torch.optim.Optimizer) -> None:
    model(torch.randn(32, 64)).sum().backward()  # type: ignore[operator]
    optimizer.step()
    optimizer.zero_grad()


def normalise(text: str) -> str:
    """Replaces times and the size of the file by fixed values."""
    text = re.sub(r'("(?:after|duration|longest_whole)_ns"): -?\d+', r"\1: 0", text)
    text = re.sub(r" +\d+\.\d ms$", "   0.1 ms", text, flags=re.MULTILINE)
    text = re.sub(r'("started_ns"): "\d+"', r'\1: "0"', text)
    text = re.sub(r'("file_bytes"): \d+', r"\1: 0", text)
    text = re.sub(r'("ended"): "[^"]*"', r'\1: "2026-01-31T12:00:01Z"', text)
    text = re.sub(r"(ended +)\S+", r"\g<1>2026-01-31T12:00:01Z", text)
    text = re.sub(r"\b\d+\.\d s\b", "0.1 s", text)
    return re.sub(r"(\.tide, )[\d.]+ KiB", r"\g<1>80.0 KiB", text)
