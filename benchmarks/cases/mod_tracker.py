# SPDX-License-Identifier: BSD-3-Clause
"""ModTracker on a tiny MLP, where the cost per module matters most."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from measure import Ratio, measure
from tidegauge import ModTracker
from torch import nn
from torch.distributed._tools.mod_tracker import ModTracker as UpstreamModTracker


def _with_hooks(tracker: Any) -> Any:
    def hook(*args: object) -> None:
        pass

    tracker.register_user_hooks(hook, hook, hook, hook)
    return tracker


def run() -> list[Ratio]:
    torch.manual_seed(0)
    layers = [layer for _ in range(20) for layer in (nn.Linear(16, 16), nn.ReLU())]
    model = nn.Sequential(*layers)
    x = torch.randn(16, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    return measure(
        "ModTracker, MLP of 20 x (Linear(16, 16), ReLU), batch 16, SGD",
        step,
        {
            "tidegauge": (ModTracker, 1.10),
            "tidegauge, four user hooks": (lambda: _with_hooks(ModTracker()), 1.6),
            "upstream": (UpstreamModTracker, None),
            "upstream, four user hooks": (lambda: _with_hooks(UpstreamModTracker()), None),
        },
        plain=nullcontext,
        steps=50,
    )
