# SPDX-License-Identifier: BSD-3-Clause
"""HSDP with a sharded checkpoint, as for `torchrun --nnodes 2 --nproc-per-node 4 ...`.

Without GPUs: tidegauge rehearse --nodes 2 --gpus 4 hybrid_sharding.py
"""

from __future__ import annotations

import os
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def main() -> None:
    dist.init_process_group("cpu:gloo,cuda:nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    local = int(os.environ["LOCAL_WORLD_SIZE"])
    shape = (dist.get_world_size() // local, local)
    mesh = init_device_mesh("cuda", shape, mesh_dim_names=("replicate", "shard"))
    model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(4))).cuda()
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(10):
        loss = model(torch.randn(64, 1024, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"step {step}: loss {loss.item():.3f}")
        if step == 0:
            weights, states = get_state_dict(model, optimizer)
            with tempfile.TemporaryDirectory() as folder:
                dcp.save({"model": weights, "optimizer": states}, checkpoint_id=folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
