# SPDX-License-Identifier: BSD-3-Clause
"""Upstream's estimators of time, on a machine without the GPU that they ask for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from unittest.mock import patch

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.runtime_estimator import RuntimeEstimator

H100_TFLOPS = 989.4  # of bfloat16, dense
H100_GB = 3350


@contextmanager
def upstream_estimators() -> Iterator[FakeTensorMode]:
    """A FakeTensorMode in which upstream believes in an H100."""
    rates = import_module("torch.utils._runtime_estimation")
    names = ("get_device_dram_gbps", "get_gpu_dram_gbps")  # the first since torch 2.15
    bandwidth = next(name for name in names if hasattr(rates, name))
    with (
        patch("torch.accelerator.is_available", lambda: True),
        patch("torch.cuda.is_available", lambda: True),
        patch.object(rates, "get_device_tflops", lambda *_, **__: H100_TFLOPS),
        patch.object(rates, bandwidth, lambda *_, **__: H100_GB),
        FakeTensorMode() as mode,
    ):
        RuntimeEstimator.fake_mode = mode
        yield mode


def tflops(milliseconds: float, size: int) -> float:
    """What a product of square matrices reached."""
    return 2 * size**3 / milliseconds / 1e9


def square(size: int) -> torch.Tensor:
    return torch.empty(size, size, dtype=torch.bfloat16)
