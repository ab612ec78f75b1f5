# SPDX-License-Identifier: BSD-3-Clause
"""Llama 3 for `tidegauge estimate llama.py --fsdp 8`: the sizes of 8B; change them with --set.

`estimate` uses SETTINGS and the functions after it; the last one is needed only for --tp.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812, its usual name


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        self.head_width = width // heads
        self.query = nn.Linear(width, heads * self.head_width, bias=False)
        self.key = nn.Linear(width, kv_heads * self.head_width, bias=False)
        self.value = nn.Linear(width, kv_heads * self.head_width, bias=False)
        self.output = nn.Linear(heads * self.head_width, width, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            project(x).unflatten(-1, (-1, self.head_width)).transpose(1, 2)
            for project in (self.query, self.key, self.value)
        )
        query, key = rotate(query, cos, sin), rotate(key, cos, sin)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        return self.output(mixed.transpose(1, 2).flatten(-2))


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-right, left), dim=-1) * sin


class FeedForward(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, width: int, hidden: int, heads: int, kv_heads: int) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(width)
        self.attention = Attention(width, heads, kv_heads)
        self.feed_forward_norm = nn.RMSNorm(width)
        self.feed_forward = FeedForward(width, hidden)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x), cos, sin)
        return x + self.feed_forward(self.feed_forward_norm(x))


class Llama(nn.Module):
    def __init__(
        self, width: int, hidden: int, layers: int, heads: int, kv_heads: int, words: int
    ) -> None:
        super().__init__()
        self.head_width = width // heads
        self.embedding = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width, hidden, heads, kv_heads) for _ in range(layers))
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        powers = torch.arange(0, self.head_width, 2, device=x.device) / self.head_width
        angles = torch.outer(torch.arange(tokens.shape[1], device=x.device), 500_000.0**-powers)
        angles = torch.cat((angles, angles), dim=-1)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.head(self.norm(x))


SETTINGS = {
    "batch": 1,
    "seq": 8192,
    "width": 4096,
    "hidden": 14336,
    "layers": 32,
    "heads": 32,
    "kv_heads": 8,
    "words": 128256,
}


def build_model(settings: Any) -> nn.Module:
    return Llama(
        settings.width,
        settings.hidden,
        settings.layers,
        settings.heads,
        settings.kv_heads,
        settings.words,
    )


def make_inputs(settings: Any) -> torch.Tensor:
    return torch.randint(0, settings.words, (settings.batch, settings.seq + 1))


def compute_loss(model: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    logits = model(inputs[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1).float(), inputs[:, 1:].flatten())


def tensor_parallel_plan(model: nn.Module) -> dict[str, Any]:
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

    split = {"query", "key", "value", "gate", "up"}
    return {
        f"blocks.*.{part}.{name}": ColwiseParallel() if name in split else RowwiseParallel()
        for part, names in (
            ("attention", ("query", "key", "value", "output")),
            ("feed_forward", ("gate", "up", "down")),
        )
        for name in names
    }
