# SPDX-License-Identifier: BSD-3-Clause
"""A model for `tidegauge estimate` whose bytes can be counted by hand.

Blocks of two square matrices without bias; an embedding and a head of `words` rows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.one = nn.Linear(width, width, bias=False)
        self.two = nn.Linear(width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.two(self.one(x).relu())


class Model(nn.Module):
    def __init__(self, width: int, layers: int, words: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


SETTINGS = {"batch": 4, "seq": 16, "width": 64, "layers": 3, "words": 120}


def build_model(settings: Any) -> nn.Module:
    return Model(settings.width, settings.layers, settings.words)


def make_inputs(settings: Any) -> torch.Tensor:
    return torch.randint(0, settings.words, (settings.batch, settings.seq))


def compute_loss(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    logits = model(tokens)
    return nn.functional.cross_entropy(logits.flatten(0, 1).float(), tokens.flatten())
