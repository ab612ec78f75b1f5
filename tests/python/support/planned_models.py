# SPDX-License-Identifier: BSD-3-Clause
"""Small models of many kinds, each with several blocks, for tests of plans."""

from __future__ import annotations

from collections.abc import Callable

import torch
from tidegauge.estimation import Contract
from torch import nn
from torch.nn import functional
from torch_version import MUTATED_PRODUCTS

WIDTH = 64


class Residual(nn.Module):
    """Adds what `body` makes of the normalised input."""

    def __init__(self, *body: nn.Module) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.body = nn.Sequential(*body)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(self.norm(x))


class Attention(nn.Module):
    def __init__(self, heads: int = 4, *, shared: bool = False) -> None:
        super().__init__()
        self.heads, self.shared = heads, shared
        self.query = nn.Linear(WIDTH, WIDTH)
        width = WIDTH // 2 if shared else WIDTH
        self.key, self.value = nn.Linear(WIDTH, width), nn.Linear(WIDTH, width)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = (self.query(x), self.key(x), self.value(x))
        query, key, value = (
            part.unflatten(-1, (-1, WIDTH // self.heads)).transpose(1, 2) for part in parts
        )
        mixed = functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, enable_gqa=self.shared
        )
        return self.out(mixed.transpose(1, 2).flatten(2))


class Gated(nn.Module):
    def __init__(self, hidden: int = 160) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(WIDTH, hidden), nn.Linear(WIDTH, hidden)
        self.down = nn.Linear(hidden, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Mixer(nn.Module):
    """Mixes along the sequence, then along the width."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.channels = nn.Linear(128, 128), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + functional.gelu(self.tokens(x.transpose(1, 2))).transpose(1, 2)
        return x + functional.gelu(self.channels(x))


class ConvBlock(nn.Module):
    def __init__(self, norm: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.one = nn.Conv2d(16, 16, 3, padding=1, bias=False)
        self.norm = norm()
        self.two = nn.Conv2d(16, 16, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.two(functional.relu(self.norm(self.one(x))))


class Stack(nn.Module):
    def __init__(self, *blocks: nn.Module) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def mlp(hidden: int) -> Residual:
    return Residual(nn.Linear(WIDTH, hidden), nn.GELU(), nn.Linear(hidden, WIDTH))


def transformer(mlp_of: Callable[[], nn.Module], *, shared: bool = False) -> nn.Module:
    pairs = [nn.Sequential(Residual(Attention(shared=shared)), mlp_of()) for _ in range(3)]
    return Stack(*pairs)


_SEQUENCE = (4, 128, WIDTH)
_IMAGE = (4, 16, 24, 24)
_MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (lambda: Stack(*(mlp(256) for _ in range(4))), _SEQUENCE),
    "unequal": (lambda: Stack(*(mlp(hidden) for hidden in (64, 512, 128, 256))), _SEQUENCE),
    "gpt": (lambda: transformer(lambda: mlp(256)), _SEQUENCE),
    "llama": (lambda: transformer(lambda: Residual(Gated()), shared=True), _SEQUENCE),
    "dropout": (
        lambda: Stack(
            *(
                Residual(nn.Linear(WIDTH, 256), nn.Dropout(0.1), nn.Linear(256, WIDTH))
                for _ in range(3)
            )
        ),
        _SEQUENCE,
    ),
    "mixer": (lambda: Stack(*(Mixer() for _ in range(3))), _SEQUENCE),
    "in_place": (
        lambda: Stack(
            *(
                Residual(nn.Linear(WIDTH, 256), nn.ReLU(inplace=True), nn.Linear(256, WIDTH))
                for _ in range(3)
            )
        ),
        _SEQUENCE,
    ),
    "resnet": (
        lambda: Stack(*(ConvBlock(lambda: nn.BatchNorm2d(16)) for _ in range(3))),
        _IMAGE,
    ),
    "group_norm": (
        lambda: Stack(*(ConvBlock(lambda: nn.GroupNorm(4, 16)) for _ in range(3))),
        _IMAGE,
    ),
    "mixed": (lambda: Stack(mlp(256), Mixer(), mlp(128), Mixer()), _SEQUENCE),
    "shared_block": (lambda: Stack(mlp(256), *(mlp(128),) * 2, mlp(256)), _SEQUENCE),
    "encoder_layer": (
        lambda: Stack(
            *(
                nn.TransformerEncoderLayer(WIDTH, 4, 128, dropout=0.0, batch_first=True)
                for _ in range(3)
            )
        ),
        _SEQUENCE,
    ),
}
NAMES = tuple(name for name in _MODELS if not (MUTATED_PRODUCTS and name == "in_place"))


def make_contract(name: str) -> Contract:
    build, shape = _MODELS[name]
    return Contract(
        name=name,
        build_model=lambda settings: build(),
        make_inputs=lambda settings: torch.randn(shape),
        compute_loss=lambda model, x: model(x).square().mean(),
    )
