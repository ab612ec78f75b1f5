# SPDX-License-Identifier: BSD-3-Clause
"""A mixture of experts for `tidegauge estimate moe.py --fsdp 8 --sweep experts=8,16,32`.

Experts choose their tokens, so shapes do not depend on values, which a simulation does not have.
`shard` makes each expert a separate FSDP2 unit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812, its usual name


class Expert(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.gelu(self.up(x)))


class Block(nn.Module):
    def __init__(self, width: int, hidden: int, heads: int, experts: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1 = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)
        self.norm_2 = nn.LayerNorm(width)
        self.router = nn.Linear(width, experts)
        self.experts = nn.ModuleList(Expert(width, hidden) for _ in range(experts))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attend(self.norm_1(x))
        return x + self.mix(self.norm_2(x).flatten(0, 1)).view_as(x)

    def attend(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.query_key_value(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*parts.unbind(0), is_causal=True)
        return self.output(mixed.transpose(1, 2).flatten(-2))

    def mix(self, tokens: torch.Tensor) -> torch.Tensor:
        """Each token goes to two experts on average."""
        scores = self.router(tokens).softmax(-1)
        weights, chosen = scores.t().topk(2 * len(tokens) // len(self.experts), dim=-1)
        result = torch.zeros_like(tokens)
        for expert, weight, index in zip(self.experts, weights, chosen, strict=True):
            weighted = expert(tokens[index]) * weight.unsqueeze(-1)
            result = result.index_add(0, index, weighted.type_as(result))
        return result


class MixtureOfExperts(nn.Module):
    def __init__(self, words: int, width: int, layers: int, heads: int, experts: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width, 4 * width, heads, experts) for _ in range(layers))
        self.head = nn.Linear(width, words)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


SETTINGS = {
    "batch": 4,
    "seq": 2048,
    "words": 32000,
    "width": 1024,
    "layers": 12,
    "heads": 16,
    "experts": 8,
}


def build_model(settings: Any) -> nn.Module:
    return MixtureOfExperts(
        settings.words, settings.width, settings.layers, settings.heads, settings.experts
    )


def make_inputs(settings: Any) -> torch.Tensor:
    return torch.randint(0, settings.words, (settings.batch, settings.seq + 1))


def compute_loss(model: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(model(inputs[:, :-1]).flatten(0, 1).float(), inputs[:, 1:].flatten())


def shard(model: nn.Module, fully_shard: Callable[[nn.Module], Any]) -> None:
    for block in model.blocks:
        for expert in block.experts:
            fully_shard(expert)
        fully_shard(block)
    fully_shard(model)
