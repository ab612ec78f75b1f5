# SPDX-License-Identifier: BSD-3-Clause
"""`labelled_steps.py DEVICE KIND`: trains a small model under a tracker, and prints the bytes on
the device, by category and by module, as JSON. KIND: plain, checkpointed or fsdp.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import torch
import torch.distributed as dist
from tidegauge import FSDPMemTracker, MemTracker
from tidegauge._torch.absent_ranks import FOR_ABSENT_RANKS
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint

# All sizes are multiples of 512 bytes, because trackers round those on CUDA.
WORLD = 2


_SIZES = ("parameter_mem", "buffer_mem", "input_mem", "output_mem")


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.register_buffer("scale", torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x)))) * self.scale.to(x.dtype)


class Model(nn.Module):
    def __init__(
        self, width: int = 512, words: int = 512, *, is_checkpointed: bool = False
    ) -> None:
        super().__init__()
        self.is_checkpointed = is_checkpointed
        self.embedding = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(3))
        self.head = nn.Linear(width, words)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = (
                checkpoint(block, x, use_reentrant=False, preserve_rng_state=False)
                if self.is_checkpointed
                else block(x)
            )
        return self.head(x)


def shard(model: Model, device: str) -> None:
    if device == "cuda":
        FOR_ABSENT_RANKS.install(FOR_ABSENT_RANKS)
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29500")
        dist.init_process_group("nccl", rank=0, world_size=WORLD)
    else:
        from torch.testing._internal.distributed.fake_pg import FakeStore

        dist.init_process_group("fake", rank=0, world_size=WORLD, store=FakeStore())
    mesh = init_device_mesh(device, (WORLD,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)


def train(device: str, kind: str) -> dict[str, Any]:
    with torch.device(device):
        model = Model(is_checkpointed=kind == "checkpointed")
        tokens = torch.zeros(4, 32, dtype=torch.long)
    is_sharded = kind == "fsdp"
    if is_sharded:
        shard(model, device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=True)
    tracker = FSDPMemTracker(model, optimizer) if is_sharded else MemTracker()
    if is_sharded:
        tracker.track_inputs((tokens,))
    else:
        tracker.track_external(model, optimizer, tokens)
    with tracker:
        for _ in range(3):
            output = model(tokens)
            output.backward(torch.ones_like(output))
            optimizer.step()
            optimizer.zero_grad()
        return describe(tracker, device)


def describe(tracker: MemTracker, device: str) -> dict[str, Any]:
    def read(snapshot: Any) -> dict[str, int]:
        rows = (split for place, split in snapshot.items() if place.type == device)
        return {str(name): size for split in rows for name, size in split.items() if size}

    modules = {
        each.mod_fqn: {
            "sizes": {name: getattr(each, name, 0) for name in _SIZES},
            "peak": [size for place, size in each.local_peak.items() if place.type == device],
            "states": {
                str(state): [read(snapshot) for snapshot in snapshots]
                for state, snapshots in each.snapshots.items()
            },
        }
        for each in tracker.memory_tracking.values()
    }
    kinds = ("current", "peak")
    return {
        **{kind: read(tracker.get_tracker_snapshot(kind)) for kind in kinds},
        "modules": modules,
    }


if __name__ == "__main__":
    device, kind = sys.argv[1:]
    print(json.dumps(train(device, kind)), flush=True)
    os._exit(0)  # torch's autograd threads may abort a process that ends after a backward
