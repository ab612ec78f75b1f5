# SPDX-License-Identifier: BSD-3-Clause
"""Trains attention whose sequence is split over ranks, with torch's ring attention.

torch uses it for the kernels of GPUs alone; here it runs the kernel of the CPU.
As a program, `context_parallel_run.py FOLDER RANK WORLD_SIZE`: one rank, on gloo.
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
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._context_parallel import _attention as ring

_HEADS, _WIDTH, _SEQ, _BATCH = 4, 32, 64, 2
_FORWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default


def _after_settling(kernel: Any) -> Any:
    """All ranks run the same number of kernels."""

    def run(*args: Any, **options: Any) -> Any:
        settle()
        return kernel(*args, **options)

    return run


class _RingAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, group: Any, *parts: torch.Tensor) -> torch.Tensor:
        out, sums = ring._templated_ring_attention(
            group, 2, _after_settling(_FORWARD), *parts, is_causal=True
        )
        ctx.group = group
        ctx.save_for_backward(*parts, out, sums)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        query, key, value, out, sums = ctx.saved_tensors
        found = ring._templated_ring_attention_backward(
            ctx.group,
            2,
            _after_settling(_BACKWARD),
            gradient,
            "grad_out",
            *(query, key, value, out, sums),
            is_causal=True,
            dropout_p=0.0,
        )
        settle()
        return None, *found[:3]


class _Model(nn.Module):
    def __init__(self, group: Any) -> None:
        super().__init__()
        self.group = group
        self.parts = nn.Linear(_WIDTH, 3 * _WIDTH)
        self.output = nn.Linear(_WIDTH, _WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.parts(x).unflatten(-1, (3, _HEADS, -1)).permute(2, 0, 3, 1, 4)
        mixed = _RingAttention.apply(self.group, *parts.unbind(0))  # type: ignore[no-untyped-call]
        settle()
        return self.output(mixed.transpose(1, 2).flatten(-2))


def train(world_size: int) -> list[dict[str, int]]:
    """The split at the peak and after two steps."""
    mesh = init_device_mesh("cpu", (world_size,), mesh_dim_names=("sequence",))
    model = _Model(mesh.get_group())
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    x = torch.randn(_BATCH, _SEQ, _WIDTH)
    tracker = MemTracker()
    tracker.track_external(model, optimizer, x)
    with tracker:
        for _ in range(2):
            with context_parallel(mesh, buffers=[x], buffer_seq_dims=[1]):
                model(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        return [
            tracker.get_tracker_snapshot(kind)[torch.device("cpu")] for kind in ("peak", "current")
        ]


def main() -> None:
    folder, rank, world_size = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    init_one_thread_gloo(dist.FileStore(str(folder / "store"), world_size), rank, world_size)
    (folder / f"rank{rank}.json").write_text(json.dumps(train(world_size)))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
