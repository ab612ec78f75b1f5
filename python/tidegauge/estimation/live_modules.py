# SPDX-License-Identifier: BSD-3-Clause
"""A model that already exists, as a contract: `tidegauge.estimate(model, inputs=...)`."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map

from tidegauge.estimation.classes import reduce_output
from tidegauge.estimation.contract import Contract, ContractError


def make_module_contract(
    model: nn.Module, inputs: Any, compute_loss: Callable[[nn.Module, Any], torch.Tensor] | None
) -> Contract:
    """`inputs`: the arguments of the model: a tensor, a list or tuple of them, or a dictionary of
    keywords. The model and the inputs are not changed, and their data is not copied."""
    if inputs is None and compute_loss is None:
        raise ContractError(
            "an nn.Module needs inputs=..., the arguments of its forward: a tensor, a tuple, or a "
            "dictionary of keywords"
        )
    return Contract(
        name=type(model).__name__,
        build_model=lambda settings: _copy_without_data(model),
        make_inputs=lambda settings: tree_map(_without_data, inputs),
        compute_loss=compute_loss or _compute_loss,
    )


def _copy_without_data(model: nn.Module) -> nn.Module:
    tensors = [*model.parameters(), *model.buffers()]
    memo: dict[int, Any] = {id(tensor): _to_meta(tensor) for tensor in tensors}
    # torch.get_default_device() does not know a device that a simulation claims.
    return copy.deepcopy(model, memo).to_empty(device=torch.empty(0).device)


def _to_meta(tensor: torch.Tensor) -> torch.Tensor:
    empty = torch.empty_like(tensor, device="meta")
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(empty, requires_grad=tensor.requires_grad)
    return empty


def _without_data(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    shape, dtype = tuple(value.shape), value.dtype
    return torch.zeros(shape, dtype=dtype, requires_grad=value.requires_grad)


def _compute_loss(model: nn.Module, inputs: Any) -> torch.Tensor:
    if isinstance(inputs, Mapping):
        return reduce_output(model(**inputs))
    return reduce_output(model(*inputs) if isinstance(inputs, tuple | list) else model(inputs))
