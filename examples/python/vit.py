# SPDX-License-Identifier: BSD-3-Clause
"""A vision transformer (ViT-L/16) for `tidegauge estimate vit.py --set batch=64 --mp bf16`."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812, its usual name


class VisionTransformer(nn.Module):
    def __init__(self, image: int, patch: int, width: int, layers: int, classes: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.positions = nn.Parameter(torch.zeros(1, (image // patch) ** 2, width))
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, width // 64, 4 * width, 0.0, F.gelu, batch_first=True, norm_first=True
            )
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))


SETTINGS = {"batch": 64, "image": 224, "patch": 16, "width": 1024, "layers": 24, "classes": 1000}


def build_model(settings: Any) -> nn.Module:
    return VisionTransformer(
        settings.image, settings.patch, settings.width, settings.layers, settings.classes
    )


def make_inputs(settings: Any) -> dict[str, torch.Tensor]:
    return {
        "images": torch.randn(settings.batch, 3, settings.image, settings.image),
        "labels": torch.randint(0, settings.classes, (settings.batch,)),
    }


def compute_loss(model: nn.Module, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    return F.cross_entropy(model(inputs["images"]), inputs["labels"])
