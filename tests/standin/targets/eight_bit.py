# SPDX-License-Identifier: BSD-3-Clause
"""examples/python/llama.py with an optimizer whose states have 8 bits (oracle_cases.py)."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "python"))
from llama import SETTINGS, build_model, compute_loss, make_inputs

__all__ = ["SETTINGS", "build_model", "compute_loss", "make_inputs", "make_optimizer"]
_BLOCK = 256


class AdamW8bit(torch.optim.Optimizer):
    """Each block of 256 elements of a state is one scale and integers of 8 bits."""

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float = 1e-3) -> None:
        super().__init__(parameters, {"lr": lr, "betas": (0.9, 0.999), "weight_decay": 0.01})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)

    def _update(self, parameter: nn.Parameter, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            blocks = -(-parameter.numel() // _BLOCK)
            for name in ("mean", "square"):
                state[name] = parameter.new_zeros((blocks, _BLOCK), dtype=torch.int8)
                state[f"{name}_scale"] = parameter.new_zeros((blocks, 1), dtype=torch.float32)
        gradient = parameter.grad.float()
        mean, square = (self._unpack(state, name, parameter) for name in ("mean", "square"))
        mean.lerp_(gradient, 1 - group["betas"][0])
        square.mul_(group["betas"][1]).addcmul_(gradient, gradient, value=1 - group["betas"][1])
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        parameter.add_((mean / (square.sqrt() + 1e-8)).to(parameter.dtype), alpha=-group["lr"])
        self._pack(state, "mean", mean)
        self._pack(state, "square", square)

    def _unpack(self, state: dict[str, Any], name: str, like: torch.Tensor) -> torch.Tensor:
        whole = state[name] * state[f"{name}_scale"]
        return whole.flatten()[: like.numel()].view_as(like)

    def _pack(self, state: dict[str, Any], name: str, value: torch.Tensor) -> None:
        count = state[name].numel()
        blocks = nn.functional.pad(value.flatten(), (0, count - value.numel())).view(-1, _BLOCK)
        scale = blocks.abs().amax(dim=1, keepdim=True) / 127
        state[f"{name}_scale"].copy_(scale)
        state[name].copy_((blocks / scale.clamp(min=1e-12)).round())


def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return AdamW8bit(model.parameters())
