# SPDX-License-Identifier: BSD-3-Clause
"""Under a user's FakeTensorMode, memory counts on the device that a tensor claims."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from contextlib import nullcontext
from typing import Any
from unittest import mock

import pytest
import torch
from fake_training import TRAINED, read_all, total, train
from runs import SIZES, Split
from tidegauge import MemTracker
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker as UpstreamMemTracker
from torch_version import NO_ADAM_ON_META


def test_device_is_the_claimed_one() -> None:
    with FakeTensorMode(), MemTracker() as tracker:
        there = torch.empty(100, device="cuda:1")
        here = torch.empty(10)
        assert (total(tracker, "cuda:1"), total(tracker)) == (512, 40)
        moved = there.to("cpu")
        assert (total(tracker, "cuda:1"), total(tracker)) == (512, 440)
        del there, moved
        assert (total(tracker, "cuda:1"), total(tracker)) == (0, 40)
        del here


def cuda_sizes(tracker: Any) -> list[dict[str, Split]]:
    """Figures of tensors and of a model, with upstream's rounding to multiples of 512 bytes."""
    figures = []
    with FakeTensorMode(), tracker:
        for device in ("cuda:1", "xpu:0", "cpu"):
            x = torch.empty(100, device=device)
            figures.append(read_all(tracker))
            for size in (513, 512, 0, 1):
                x.untyped_storage().resize_(size)
                figures.append(read_all(tracker))
            del x
        with torch.no_grad(), mock.patch.object(nn.Linear, "reset_parameters"):
            model = nn.Linear(32, 32, device="cuda:0")
            output = model(torch.empty(4, 32, device="cuda:0"))
        figures.append(read_all(tracker))
        (stats,) = tracker.memory_tracking.values()
        figures.append({"sizes": {size: getattr(stats, size) for size in SIZES}})
        del model, output
    return figures


def test_cuda_is_rounded_as_upstream_does() -> None:
    figures = cuda_sizes(MemTracker())
    assert figures == cuda_sizes(UpstreamMemTracker())
    totals = [sum(split["Total"] for split in each.values()) for each in figures[:15]]
    assert totals == [512, 1024, 512, 0, 512, *[400, 513, 512, 0, 1] * 2]
    # The bias has 128 bytes, the input and the output 512 each.
    parameters = 32 * 32 * 4 + 512
    assert figures[15:] == [
        {"cuda:0": {"Parameter": parameters, "Activation": 512, "Total": parameters + 512}},
        {"sizes": dict(zip(SIZES, (parameters, 0, 512, 512), strict=True))},
    ]


WITHOUT_CACHING = """
import torch
from tidegauge import MemTracker
from torch._subclasses.fake_tensor import FakeTensorMode

with FakeTensorMode(), MemTracker() as tracker:
    x = torch.empty(100, device="cuda:1")
    print(sum(tracker._peak_mem.values()))
"""


@pytest.mark.parametrize(("value", "expected"), [("1", 400), ("0", 512), ("", 512)])
def test_cuda_is_not_rounded_without_its_cache(value: str, expected: int) -> None:
    environment = os.environ | {"PYTORCH_NO_CUDA_MEMORY_CACHING": value}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_CACHING], env=environment, capture_output=True, text=True
    )
    assert (done.stdout, done.returncode) == (f"{expected}\n", 0), done.stderr


@NO_ADAM_ON_META.skips
def test_meta_within_the_mode_counts() -> None:
    def run(tracker: Any) -> list[dict[str, Split]]:
        figures = []
        with FakeTensorMode(), tracker:
            x = torch.empty(100, device="meta")
            figures.append(read_all(tracker))
            y = x + 1
            figures.append(read_all(tracker))
            x.untyped_storage().resize_(800)
            figures.append(read_all(tracker))
            del x, y
            figures.append(read_all(tracker))
            with torch.device("meta"):
                kept = train()
            figures += read_all(tracker), read_all(tracker, "peak")
            del kept
        return figures

    mine, theirs = run(MemTracker()), run(UpstreamMemTracker())
    assert [sum(split["Total"] for split in each.values()) for each in mine[:4]] == [
        400,
        800,
        1200,
        0,
    ]
    assert mine == theirs


@NO_ADAM_ON_META.skips
@pytest.mark.parametrize("mode", [nullcontext, FakeTensorMode])
def test_training_on_meta_has_the_figures_of_the_cpu(mode: Any) -> None:
    """Except for step counters, which an optimizer keeps on the CPU."""

    def run(tracker: Any, device: str) -> tuple[dict[str, Split], dict[str, Split]]:
        with mode(), torch.device(device), tracker:
            kept = train()
            figures = read_all(tracker), read_all(tracker, "peak")
            del kept
        return figures

    def merge(splits: dict[str, Split]) -> Split:
        sums: Counter[str] = Counter()
        for split in splits.values():
            sums.update(split)
        return dict(sums)

    on_meta, on_cpu = run(MemTracker(), "meta"), run(MemTracker(), "cpu")
    assert on_meta == run(UpstreamMemTracker(), "meta")
    assert on_meta[0].keys() == {"meta", "cpu"}
    assert on_meta[0]["cpu"] == {"Optstate": 2 * 4, "Total": 2 * 4}
    assert [merge(splits) for splits in on_meta] == [merge(splits) for splits in on_cpu]
    assert on_cpu[0] == {"cpu": TRAINED}
