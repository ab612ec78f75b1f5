# SPDX-License-Identifier: BSD-3-Clause
"""Data parallel training, as for `torchrun --nproc-per-node 8 ddp.py`.

Without GPUs: tidegauge rehearse --gpus 8 ddp.py
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    model = nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(8))).cuda()
    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    for step in range(10):
        loss = model(torch.randn(128, 2048, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach()
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        if dist.get_rank() == 0:
            print(f"step {step}: loss {mean.item():.3f}")
    seen: list[object] = [None] * dist.get_world_size()
    dist.all_gather_object(seen, {"rank": dist.get_rank()})
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
