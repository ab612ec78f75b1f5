# SPDX-License-Identifier: BSD-3-Clause
"""A language model with layer norms, GELU, dropout and learned positions (oracle_cases.py)."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812, its usual name


class Block(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.attention_norm = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)
        self.feed_forward_norm = nn.LayerNorm(width)
        self.feed_forward = nn.Sequential(
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Linear(4 * width, width),
            nn.Dropout(dropout),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attend(self.attention_norm(x))
        return x + self.feed_forward(self.feed_forward_norm(x))

    def attend(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            each.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for each in self.query_key_value(x).chunk(3, dim=-1)
        )
        mixed = F.scaled_dot_product_attention(
            query, key, value, dropout_p=self.dropout, is_causal=True
        )
        return self.output(mixed.transpose(1, 2).flatten(-2))


class LanguageModel(nn.Module):
    def __init__(self, settings: Any) -> None:
        super().__init__()
        self.words = nn.Embedding(settings.words, settings.width)
        self.positions = nn.Embedding(settings.seq, settings.width)
        self.dropout = nn.Dropout(settings.dropout)
        self.blocks = nn.ModuleList(
            Block(settings.width, settings.heads, settings.dropout) for _ in range(settings.layers)
        )
        self.norm = nn.LayerNorm(settings.width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.dropout(self.words(tokens) + self.positions(positions))
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.words.weight)


SETTINGS = {
    "batch": 4,
    "seq": 512,
    "width": 384,
    "layers": 4,
    "heads": 6,
    "words": 8192,
    "dropout": 0.1,
}


def build_model(settings: Any) -> nn.Module:
    return LanguageModel(settings)


def make_inputs(settings: Any) -> torch.Tensor:
    return torch.randint(0, settings.words, (settings.batch, settings.seq + 1))


def compute_loss(model: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    logits = model(inputs[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), inputs[:, 1:].flatten())
