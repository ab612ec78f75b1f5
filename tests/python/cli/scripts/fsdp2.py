# SPDX-License-Identifier: BSD-3-Clause
"""FSDP2 on gloo, started by torchrun. Rank 1 has a much larger batch, so that its peak is higher
even if gloo's threads keep some buffers of rank 0 for a while."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
for layer in (model[0], model[2]):
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(2):
    model(torch.randn(64 * (1 + 7 * dist.get_rank()), 64)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
