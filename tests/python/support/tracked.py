# SPDX-License-Identifier: BSD-3-Clause
"""Our tracker on a few lines of training, for tests with numbers computed by hand."""

from __future__ import annotations

from typing import Any

import torch
from runs import Split, read_split
from torch import nn

FLOAT = 4
"""bytes of a float32"""


def now(tracker: Any) -> Split:
    return read_split(tracker.get_tracker_snapshot())


def peak(tracker: Any) -> Split:
    return read_split(tracker.get_tracker_snapshot("peak"))


def parameter_bytes(model: nn.Module) -> int:
    return sum(p.numel() * p.element_size() for p in model.parameters())


def split(**bytes_by_category: int) -> Split:
    """Without empty categories, with the total, in the form of `now` and `peak`."""
    held = {name: size for name, size in bytes_by_category.items() if size}
    return {**held, "Total": sum(held.values())} if held else {}


def track(*external: Any, allocator: bool = False) -> Any:
    from tidegauge import MemTracker

    tracker = MemTracker(allocator=allocator)
    tracker.track_external(*external)
    return tracker


def train_once(model: nn.Module, x: torch.Tensor) -> tuple[Split, Split, Split]:
    """(after forward, after backward, at the peak) of one step on the sum of the outputs."""
    tracker = track(model, x)
    with tracker:
        loss = model(x).sum()
        forward = now(tracker)
        loss.backward()
        return forward, now(tracker), peak(tracker)
