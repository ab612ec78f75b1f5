# SPDX-License-Identifier: BSD-3-Clause
"""Llama over pipeline stages, tensor parallel ranks and FSDP2 shards, with recomputed blocks.

70B on 64 GPUs that are not there:
    tidegauge rehearse --nodes 8 --gpus 8 four_dimensions.py --tp 8
405B on 512, the first and the last rank:
    tidegauge rehearse --nodes 64 --gpus 8 --rank 0,511 four_dimensions.py --tp 8 --pp 8 \\
        --width 16384 --hidden 53248 --layers 126 --heads 128 --seq 2048
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn import functional as F  # noqa: N812, its usual name

sys.path.insert(0, str(Path(__file__).parent.parent))
from llama import Block

SLICED = {
    "attention.query": ColwiseParallel(),
    "attention.key": ColwiseParallel(),
    "attention.value": ColwiseParallel(),
    "attention.output": RowwiseParallel(),
    "feed_forward.gate": ColwiseParallel(),
    "feed_forward.up": ColwiseParallel(),
    "feed_forward.down": RowwiseParallel(),
}


class Stage(nn.Module):
    """The blocks of one stage; the first stage has the embedding, the last one the head."""

    def __init__(self, args: argparse.Namespace, index: int) -> None:
        super().__init__()
        first = args.layers * index // args.pp
        last = args.layers * (index + 1) // args.pp
        self.head_width = args.width // args.heads
        self.embedding = nn.Embedding(args.words, args.width) if index == 0 else None
        self.blocks = nn.ModuleList(
            Block(args.width, args.hidden, args.heads, args.kv_heads) for _ in range(first, last)
        )
        is_last = index == args.pp - 1
        self.norm = nn.RMSNorm(args.width) if is_last else None
        self.head = nn.Linear(args.width, args.words, bias=False) if is_last else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.embedding is not None:
            x = self.embedding(x)
        angles = torch.ones(x.shape[1], self.head_width, device=x.device)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for block in self.blocks:
            x = block(x, cos, sin)
        return x if self.head is None or self.norm is None else self.head(self.norm(x))


def compute_loss(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.flatten(0, 1).float(), tokens.flatten())


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, size in (
        *(("tp", 8), ("pp", 1), ("width", 8192), ("hidden", 28672), ("layers", 80)),
        *(("heads", 64), ("kv-heads", 8), ("words", 128256), ("seq", 8192), ("batch", 1)),
    ):
        parser.add_argument(f"--{name}", type=int, default=size)
    args = parser.parse_args()

    dist.init_process_group("nccl")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    shards = dist.get_world_size() // (args.pp * args.tp)
    names = ("pp", "dp", "tp")
    mesh = init_device_mesh("cuda", (args.pp, shards, args.tp), mesh_dim_names=names)
    index = mesh["pp"].get_local_rank()
    with torch.device("meta"):
        model = Stage(args, index)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for number, block in enumerate(model.blocks):
        parallelize_module(block, mesh["tp"], SLICED)
        model.blocks[number] = fully_shard(
            checkpoint_wrapper(block), mesh=mesh["dp"], mp_policy=policy
        )
    fully_shard(model, mesh=mesh["dp"], mp_policy=policy)
    model.to_empty(device=device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    micro_batches = args.pp
    tokens = torch.randint(args.words, (args.batch * micro_batches, args.seq), device=device)
    for step in range(10):
        losses: list[torch.Tensor] = []
        if args.pp == 1:
            losses.append(compute_loss(model(tokens), tokens))
            losses[0].backward()
        else:
            group = mesh["pp"].get_group()
            stage = PipelineStage(model, index, args.pp, device, group=group)
            schedule = Schedule1F1B(stage, micro_batches, loss_fn=compute_loss)
            arguments = [tokens] if index == 0 else []
            schedule.step(*arguments, target=tokens if model.head else None, losses=losses)
        optimizer.step()
        optimizer.zero_grad()
        for loss in losses[-1:]:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
