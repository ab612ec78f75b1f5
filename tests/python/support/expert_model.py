# SPDX-License-Identifier: BSD-3-Clause
"""A model for `tidegauge estimate` with all that ranks can share: rows, sequences, experts.

Each token goes to an expert by its position, so a real run exchanges what a simulated one does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._functional_collectives import all_to_all_single_autograd, wait_tensor
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
)

EXPERTS = 4


class Experts(nn.Module):
    def __init__(self, width: int, skew: int) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.randn(EXPERTS, width, 2 * width) / width)
        self.down = nn.Parameter(torch.randn(EXPERTS, 2 * width, width) / width)
        self.skew = skew
        self.group: Any = None
        self.ranks = 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = x.flatten(0, 1)
        # With a skew, more tokens go to the first experts.
        experts = torch.arange(len(tokens), device=x.device) * EXPERTS // len(tokens) // self.skew
        counts = torch.bincount(experts, minlength=EXPERTS).view(self.ranks, -1)
        received = counts
        if self.group is not None:
            received = torch.empty_like(counts)
            dist.all_to_all_single(received, counts, group=self.group)
            sent, got = counts.sum(1).tolist(), received.sum(1).tolist()
            tokens = wait_tensor(all_to_all_single_autograd(tokens, got, sent, self.group))
        # By sender and expert; each part is one product.
        parts = tokens.split(received.flatten().tolist())
        count = EXPERTS // self.ranks
        up, down = (to_local(each) for each in (self.up, self.down))
        done = [
            (part @ up[number % count]).relu() @ down[number % count]
            for number, part in enumerate(parts)
        ]
        tokens = torch.cat(done)
        if self.group is not None:
            tokens = wait_tensor(all_to_all_single_autograd(tokens, sent, got, self.group))
        return tokens.view_as(x)


def to_local(parameter: Any) -> torch.Tensor:
    return parameter.to_local() if hasattr(parameter, "to_local") else parameter


class Block(nn.Module):
    def __init__(self, width: int, skew: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.one = nn.Linear(width, 2 * width, bias=False)
        self.two = nn.Linear(2 * width, width, bias=False)
        self.experts = Experts(width, skew)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.two(self.one(self.norm(x)).relu())
        return x + self.experts(x)


class Model(nn.Module):
    def __init__(self, width: int, layers: int, words: int, skew: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width, skew) for _ in range(layers))
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


SETTINGS = {"batch": 4, "seq": 16, "width": 32, "layers": 2, "words": 40, "skew": 1}


def build_model(settings: Any) -> nn.Module:
    return Model(settings.width, settings.layers, settings.words, settings.skew)


def make_inputs(settings: Any) -> torch.Tensor:
    return torch.randint(0, settings.words, (settings.batch, settings.seq))


def compute_loss(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    logits = model(tokens)
    return nn.functional.cross_entropy(logits.flatten(0, 1).float(), tokens.flatten())


def tensor_parallel_plan(model: nn.Module) -> dict[str, Any]:
    """With sequence parallelism: outside of the two products each rank has a part of the tokens."""
    return {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "blocks.*.norm": SequenceParallel(use_local_output=True),
        "blocks.*.one": ColwiseParallel(input_layouts=Shard(1)),
        "blocks.*.two": RowwiseParallel(output_layouts=Shard(1)),
        "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
    }


def parallelize_experts(model: nn.Module, mesh: Any, tp_mesh: Any) -> Sequence[nn.Module]:
    experts = [each for each in model.modules() if isinstance(each, Experts)]
    for each in experts:
        each.group, each.ranks = mesh.get_group(), mesh.size()
        for name in ("up", "down"):
            whole = getattr(each, name)
            part = distribute_tensor(whole.data, mesh, [Shard(0)], src_data_rank=None)
            setattr(each, name, nn.Parameter(part))
    return experts
