# SPDX-License-Identifier: BSD-3-Clause
"""A small training step for tests under FakeTensorMode, and its bytes."""

from __future__ import annotations

from typing import Any

import torch
from runs import Split, read_split
from torch import nn


class Buffered(nn.Linear):
    def __init__(self) -> None:
        super().__init__(32, 32)
        self.register_buffer("scale", torch.ones(7))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * self.scale.sum()


def train() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = Buffered()
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(4, 32)).sum().backward()
    optimizer.step()
    return model, optimizer


PARAMETERS = (32 * 32 + 32) * 4
TRAINED = {
    "Parameter": PARAMETERS,
    "Buffer": 7 * 4,
    "Gradient": PARAMETERS,
    "Optstate": 2 * PARAMETERS + 2 * 4,  # two moments, and a step counter per parameter
    "Total": 4 * PARAMETERS + 7 * 4 + 2 * 4,
}
"""The bytes after `train`."""


def read_all(tracker: Any, kind: str = "current") -> dict[str, Split]:
    """The snapshot of all devices."""
    snapshot = tracker.get_tracker_snapshot(kind)
    return {str(device): read_split(snapshot, device) for device in snapshot}


def total(tracker: Any, device: str = "cpu") -> int:
    return read_split(tracker.get_tracker_snapshot(), torch.device(device)).get("Total", 0)
