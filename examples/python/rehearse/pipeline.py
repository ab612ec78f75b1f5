# SPDX-License-Identifier: BSD-3-Clause
"""Pipeline parallel training, as for `torchrun --nproc-per-node 4 pipeline.py`.

Without GPUs: tidegauge rehearse --gpus 4 --rank 0,1,2,3 pipeline.py
Stages learn the shapes of their inputs from the stages before them, so begin with rank 0.
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B


def main() -> None:
    dist.init_process_group("nccl")
    rank, stages = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    blocks = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(4))).to(device)
    stage = PipelineStage(blocks, rank, stages, device)
    schedule = Schedule1F1B(stage, 8, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.AdamW(blocks.parameters(), lr=1e-3)
    for step in range(10):
        data = torch.randn(256, 1024, device=device)
        losses: list[torch.Tensor] = []
        if rank == 0:
            schedule.step(data)
        elif rank == stages - 1:
            schedule.step(target=data, losses=losses)
        else:
            schedule.step()
        optimizer.step()
        optimizer.zero_grad()
        if losses:
            print(f"step {step}: loss {torch.stack(losses).mean().item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
