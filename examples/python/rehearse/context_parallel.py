# SPDX-License-Identifier: BSD-3-Clause
"""Context parallel attention, as for `torchrun --nproc-per-node 4 context_parallel.py`.

Without GPUs: tidegauge rehearse --gpus 4 context_parallel.py
"""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel
from torch.nn.attention import SDPBackend, sdpa_kernel


def main() -> None:
    dist.init_process_group("nccl")
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    mesh = init_device_mesh("cuda", (dist.get_world_size(),), mesh_dim_names=("cp",))
    project = nn.Linear(512, 3 * 512, device="cuda", dtype=torch.bfloat16)
    optimizer = torch.optim.AdamW(project.parameters(), lr=1e-3)
    for step in range(10):
        x = torch.randn(2, 4096, 512, device="cuda", dtype=torch.bfloat16)
        with context_parallel(mesh, buffers=[x], buffer_seq_dims=[1]):
            q, k, v = project(x).view(2, -1, 3, 8, 64).permute(2, 0, 3, 1, 4).contiguous()
            with sdpa_kernel([SDPBackend.FLASH_ATTENTION]):
                y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            loss = y.float().square().mean()
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"step {step}: loss {loss.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
