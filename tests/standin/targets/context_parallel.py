# SPDX-License-Identifier: BSD-3-Clause
"""Attention over sequences of which each rank of `--tp` has a part (oracle_cases.py)."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.autograd import Variable
from torch.distributed.tensor.experimental import _attention as context_parallel
from torch.distributed.tensor.parallel import parallelize_module
from torch.nn import functional as F  # noqa: N812, its usual name
from torch.nn.attention import SDPBackend, sdpa_kernel


class Mix(nn.Module):
    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        with sdpa_kernel([SDPBackend.FLASH_ATTENTION]):
            return F.scaled_dot_product_attention(query, key, value, is_causal=True)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.mix = Mix()
        self.output = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            each.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for each in self.query_key_value(self.norm(x)).chunk(3, dim=-1)
        )
        return x + self.output(self.mix(query, key, value).transpose(1, 2).flatten(-2))


SETTINGS = {"batch": 2, "seq": 2048, "width": 512, "heads": 8, "layers": 3}


def build_model(settings: Any) -> nn.Module:
    return nn.Sequential(
        *(Attention(settings.width, settings.heads) for _ in range(settings.layers))
    )


def parallelize(model: nn.Module, mesh: Any) -> None:
    kind = context_parallel._ContextParallel.AttentionType.SDPA
    style = context_parallel._ContextParallel(seq_dim=2, attention_type=kind)
    for module in model.modules():
        if isinstance(module, Mix):
            parallelize_module(module, mesh, style)


def make_inputs(settings: Any) -> torch.Tensor:
    """The part of one rank."""
    return torch.rand(settings.batch, settings.seq // 2, settings.width, dtype=torch.bfloat16)


def compute_loss(model: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    context_parallel._enable_context_parallel_dispatcher()
    loss = model(inputs).float().square().mean()
    context_parallel._disable_context_parallel_dispatcher()
    loss.register_hook(_dispatch_in_backward)
    return loss


def _dispatch_in_backward(gradient: torch.Tensor) -> None:
    context_parallel._enable_context_parallel_dispatcher()
    disable = context_parallel._disable_context_parallel_dispatcher
    Variable._execution_engine.queue_callback(disable)
