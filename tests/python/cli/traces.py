# SPDX-License-Identifier: BSD-3-Clause
"""Traces whose every number can be checked by eye, and output without what differs each time."""

from __future__ import annotations

import re
from pathlib import Path

import torch
from tidegauge import MemTracker, Recorder
from torch import nn

FACTS = {
    "command": "python train.py",
    "host": "harbour",
    "pid": "42",
    "started": "2026-01-31T12:00:00Z",
    "torch_version": "2.13.0",
    "tidegauge_version": "0.1.0",
}


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


def normalise(text: str) -> str:
    """Times, and the size of the file, become the same each time."""
    text = re.sub(r'("(?:after|duration)_ns"): -?\d+', r"\1: 0", text)
    text = re.sub(r'("started_ns"): "\d+"', r'\1: "0"', text)
    text = re.sub(r'("file_bytes"): \d+', r"\1: 0", text)
    text = re.sub(r'("ended"): "[^"]*"', r'\1: "2026-01-31T12:00:01Z"', text)
    text = re.sub(r"(ended +)\S+", r"\g<1>2026-01-31T12:00:01Z", text)
    text = re.sub(r"\b\d+\.\d s\b", "0.1 s", text)
    return re.sub(r"(\.tide, )[\d.]+ KiB", r"\g<1>80.0 KiB", text)
