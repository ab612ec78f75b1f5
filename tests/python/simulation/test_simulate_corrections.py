# SPDX-License-Identifier: BSD-3-Clause
"""Ops whose meta kernels in torch make other tensors than the real kernels."""

from __future__ import annotations

import pytest
import torch
from tidegauge import MemTracker, simulate
from torch import nn

FLOAT, BF16 = torch.float32, torch.bfloat16


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(
    ("dtype", "dtype_of_weights"), [(FLOAT, FLOAT), (BF16, BF16), (BF16, FLOAT), (BF16, None)]
)
def test_group_norm_equals_the_real_kernel(
    dtype: torch.dtype, dtype_of_weights: torch.dtype | None, layout: torch.memory_format
) -> None:
    """With fp32 weights, statistics are fp32 and gradients have the dtype of the inputs."""

    def run() -> list[tuple[torch.dtype, tuple[int, ...], int]]:
        x = torch.zeros(2, 4, 6, 6, dtype=dtype).to(memory_format=layout)
        weight = None if dtype_of_weights is None else torch.zeros(4, dtype=dtype_of_weights)
        y, mean, rstd = torch.native_group_norm(x, weight, weight, 2, 4, 36, 2, 1e-5)
        mask = [True, weight is not None, weight is not None]
        gradients = torch.ops.aten.native_group_norm_backward(
            torch.zeros_like(y), x, mean, rstd, weight, 2, 4, 36, 2, mask
        )
        made = [each for each in (y, mean, rstd, *gradients) if each is not None]
        return [(each.dtype, each.stride(), each.untyped_storage().nbytes()) for each in made]

    real = run()
    with simulate():
        assert run() == real


def test_group_norm_under_autocast_has_the_real_peak() -> None:
    def run() -> int:
        model = nn.Sequential(nn.Conv2d(4, 8, 3), nn.GroupNorm(2, 8), nn.Conv2d(8, 4, 3))
        x = torch.zeros(2, 4, 32, 32)
        tracker = MemTracker()
        tracker.track_external(model, x)
        with tracker, torch.autocast("cpu", BF16):
            model(x).sum().backward()
        return tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"]

    real = run()
    with simulate():
        assert run() == real


def test_set_shares_the_storage_on_every_call() -> None:
    with simulate() as simulation:
        for size in (4, 4, 6):
            source, whole, part = torch.empty(size), torch.empty(1), torch.empty(2, 3)
            whole.set_(source.untyped_storage())
            part.set_(source.untyped_storage(), 1, (size - 1,), (1,))
            assert (whole.shape, part.shape, part.storage_offset()) == ((size,), (size - 1,), 1)
            for tensor in (whole, part):
                assert tensor.untyped_storage()._cdata == source.untyped_storage()._cdata
        cached = {row.op: row.cached for row in simulation.coverage() if "set_" in row.op}
        assert cached == {
            "aten::set_.source_Storage": 0,
            "aten::set_.source_Storage_storage_offset": 0,
        }
