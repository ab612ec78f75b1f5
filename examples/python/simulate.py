# SPDX-License-Identifier: BSD-3-Clause
"""Finds the memory that one of 8 ranks needs to train 65 billion parameters, without using it."""

import tidegauge
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(width)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.silu(self.up(self.norm(x))))


with tidegauge.simulate(world_size=8, rank=0):
    model = nn.Sequential(*(Block(12288) for _ in range(54)))
    for block in model:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    tracker = tidegauge.FSDPMemTracker(model, optimizer)
    with tracker:
        for _ in range(2):
            model(torch.randn(4096, 12288)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(f"{parameters / 1e9:.1f} billion parameters")
    for category, size_bytes in tracker.get_tracker_snapshot("peak")[torch.device("cpu")].items():
        if size_bytes > 0:
            print(f"{getattr(category, 'value', category):16}{size_bytes / 2**30:8.2f} GiB")
