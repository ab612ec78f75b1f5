# SPDX-License-Identifier: BSD-3-Clause
"""LoRA: small trainable matrices beside the linear layers of a frozen model, made by PEFT."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch import nn

from tidegauge.estimation.contract import ContractError
from tidegauge.estimation.plan import parse_lora


def add_adapters(model: nn.Module, lora: str, *, is_cast: bool) -> None:
    """`lora`: as in a plan. `is_cast`: adapters of 16-bit models are float32, as PEFT makes them.

    FSDP2 requires that the parameters of a unit have one type. Raises ContractError without PEFT,
    ValueError if a name fits no module.
    """
    try:
        peft: Any = import_module("peft")
    except ImportError:
        raise ContractError(
            "lora requires PEFT, which is not installed (pip install peft)"
        ) from None
    rank, targets = parse_lora(lora)
    names = [*targets] or _find_linear(model)
    config = peft.LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=names)
    peft.inject_adapter_in_model(config, model)
    if is_cast:
        for parameter in model.parameters():
            if parameter.requires_grad and parameter.dtype in (torch.float16, torch.bfloat16):
                parameter.data = parameter.data.float()


def _find_linear(model: nn.Module) -> list[str]:
    """The names of all linear layers but the output, which PEFT leaves out, too."""
    output = getattr(model, "get_output_embeddings", lambda: None)()
    linear = [(name, each) for name, each in model.named_modules() if isinstance(each, nn.Linear)]
    if output is None and len(linear) > 1:
        output = linear[-1][1]
    return [name for name, each in linear if each is not output]
