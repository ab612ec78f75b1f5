# SPDX-License-Identifier: BSD-3-Clause
"""A model whose parameters are almost all embeddings (oracle_cases.py)."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812, its usual name


class Recommender(nn.Module):
    def __init__(self, settings: Any) -> None:
        super().__init__()
        self.users = nn.Embedding(settings.rows, settings.width)
        self.items = nn.Embedding(settings.rows // 2, settings.width)
        self.history = nn.EmbeddingBag(settings.rows, settings.width, mode="mean")
        self.layers = nn.Sequential(
            nn.Linear(3 * settings.width, 256), nn.ReLU(), nn.Linear(256, 1)
        )

    def forward(
        self, users: torch.Tensor, items: torch.Tensor, history: torch.Tensor
    ) -> torch.Tensor:
        found = (self.users(users), self.items(items), self.history(history))
        return self.layers(torch.cat(found, dim=-1)).squeeze(-1)


SETTINGS = {"batch": 8192, "rows": 200_000, "width": 64, "history": 20}


def build_model(settings: Any) -> nn.Module:
    return Recommender(settings)


def make_inputs(settings: Any) -> tuple[torch.Tensor, ...]:
    count = settings.batch
    return (
        torch.randint(0, settings.rows, (count,)),
        torch.randint(0, settings.rows // 2, (count,)),
        torch.randint(0, settings.rows, (count, settings.history)),
        torch.rand(count),
    )


def compute_loss(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
    *features, target = inputs
    return F.binary_cross_entropy_with_logits(model(*features), target)
