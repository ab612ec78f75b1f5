# SPDX-License-Identifier: BSD-3-Clause
"""A mixture of experts over ranks, as for `torchrun --nproc-per-node 4 expert_parallel.py`.

Without GPUs: tidegauge rehearse --gpus 4 --routing balanced expert_parallel.py
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._functional_collectives import all_to_all_single_autograd

WIDTH, LOCAL_EXPERTS = 512, 2


class Experts(nn.Module):
    def __init__(self, ranks: int) -> None:
        super().__init__()
        self.ranks = ranks
        self.router = nn.Linear(WIDTH, ranks * LOCAL_EXPERTS, bias=False)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LOCAL_EXPERTS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight, expert = self.router(x).softmax(-1).max(-1)
        order = expert.argsort(stable=True)
        counts = torch.bincount(expert, minlength=self.ranks * LOCAL_EXPERTS)
        counts_here = torch.empty_like(counts)
        dist.all_to_all_single(counts_here, counts)
        send = counts.view(self.ranks, -1).sum(1).tolist()
        receive = counts_here.view(self.ranks, -1).sum(1).tolist()
        tokens = all_to_all_single_autograd(x[order], receive, send, dist.group.WORLD)
        parts = tokens.split(counts_here.tolist())
        done = [self.experts[i % LOCAL_EXPERTS](part) for i, part in enumerate(parts)]
        back = all_to_all_single_autograd(torch.cat(done), send, receive, dist.group.WORLD)
        return torch.zeros_like(x).index_add(0, order, back * weight[order, None])


def main() -> None:
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    model = Experts(dist.get_world_size()).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(10):
        loss = model(torch.randn(4096, WIDTH, device="cuda")).square().mean()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if not torch.isfinite(norm):
            raise RuntimeError("the gradients are not finite")
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"step {step}: loss {loss.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
