# SPDX-License-Identifier: BSD-3-Clause
"""A denoising U-Net for `tidegauge estimate unet.py --max batch --device a100-40g`.

It has no list of blocks, so `blocks` returns the modules to checkpoint and shard. It also has its
own `optimizer`.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812, its usual name


class Residual(nn.Module):
    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        self.norm_1 = nn.GroupNorm(8, channels_in)
        self.conv_1 = nn.Conv2d(channels_in, channels_out, 3, padding=1)
        self.norm_2 = nn.GroupNorm(8, channels_out)
        self.conv_2 = nn.Conv2d(channels_out, channels_out, 3, padding=1)
        self.shortcut = nn.Conv2d(channels_in, channels_out, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv_1(F.silu(self.norm_1(x)))
        return self.shortcut(x) + self.conv_2(F.silu(self.norm_2(y)))


class UNet(nn.Module):
    def __init__(self, channels: int, levels: int) -> None:
        super().__init__()
        self.enter = nn.Conv2d(3, channels, 3, padding=1)
        widths = [channels * 2**level for level in range(levels)]
        self.down = nn.ModuleDict(
            {
                str(i): Residual(narrow, wide)
                for i, (narrow, wide) in enumerate(itertools.pairwise(widths))
            }
        )
        self.middle = Residual(widths[-1], widths[-1])
        self.up = nn.ModuleDict(
            {
                str(i): Residual(wide + narrow, narrow)
                for i, (narrow, wide) in enumerate(itertools.pairwise(widths))
            }
        )
        self.leave = nn.Conv2d(channels, 3, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.enter(x)
        kept = []
        for block in self.down.values():
            kept.append(x)
            x = F.avg_pool2d(block(x), 2)
        x = self.middle(x)
        for block in reversed(self.up.values()):
            x = block(torch.cat((F.interpolate(x, scale_factor=2.0), kept.pop()), dim=1))
        return self.leave(x)


SETTINGS = {"batch": 16, "image": 256, "channels": 128, "levels": 4}


def build_model(settings: Any) -> nn.Module:
    return UNet(settings.channels, settings.levels)


def make_inputs(settings: Any) -> torch.Tensor:
    return torch.randn(settings.batch, 3, settings.image, settings.image)


def compute_loss(model: nn.Module, images: torch.Tensor) -> torch.Tensor:
    noise = torch.randn_like(images)
    return F.mse_loss(model(images + noise), noise)


def blocks(model: nn.Module) -> list[nn.Module]:
    return [module for module in model.modules() if isinstance(module, Residual)]


def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
