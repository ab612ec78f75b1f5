# SPDX-License-Identifier: BSD-3-Clause
"""Converts real and meta tensors and modules to simulated ones; pauses a simulation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from tidegauge import _C


class paused:  # noqa: N801, reads as a word
    """Tensors made in this context are real: all of them, or only integer tensors."""

    def __init__(self, *, only_integers: bool = False) -> None:
        self._only_integers = only_integers

    def __enter__(self) -> None:
        _C.simulation_pause(self._only_integers)

    def __exit__(self, *args: object) -> None:
        _C.simulation_resume(self._only_integers)


def _simulated_like(tensors: list[torch.Tensor], device: torch.device | None) -> list[torch.Tensor]:
    """Simulated tensors on `device`; by default on the device of each source (CPU for meta)."""

    def device_of(tensor: torch.Tensor) -> torch.device:
        if device is not None:
            return device
        return torch.device("cpu") if tensor.is_meta else tensor.device

    result: list[torch.Tensor | None] = [None] * len(tensors)
    for place in {device_of(tensor) for tensor in tensors}:
        positions = [i for i, tensor in enumerate(tensors) if device_of(tensor) == place]
        adopted = _C.adopt_tensors([tensors[i].detach() for i in positions], place)
        for position, tensor in zip(positions, adopted, strict=True):
            source = tensors[position]
            if isinstance(source, nn.Parameter):
                tensor = nn.Parameter(tensor, requires_grad=source.requires_grad)
            else:
                tensor.requires_grad_(source.requires_grad)
            result[position] = tensor
    return result  # type: ignore[return-value]


def adopt_tree(tree: Any, device: torch.device | None) -> Any:
    """The same structure with simulated tensors; those that share memory still share it."""
    leaves, spec = pytree.tree_flatten(tree)
    positions = [
        i
        for i, leaf in enumerate(leaves)
        if isinstance(leaf, torch.Tensor) and not _C.is_simulated(leaf)
    ]
    for i, tensor in zip(
        positions, _simulated_like([leaves[i] for i in positions], device), strict=True
    ):
        leaves[i] = tensor
    return pytree.tree_unflatten(leaves, spec)


def find_simulated(tree: Any) -> torch.Tensor | None:
    for leaf in pytree.tree_leaves(tree):
        if isinstance(leaf, torch.Tensor) and _C.is_simulated(leaf):
            return leaf
    return None


def adopt_module(module: nn.Module, device: torch.device | None) -> Callable[[], None]:
    """Replaces the module's tensors by simulated ones. Returns a function that restores them."""
    owners: list[tuple[dict[str, Any], str, torch.Tensor]] = []
    for child in module.modules():
        tables: tuple[dict[str, Any], ...] = (child._parameters, child._buffers)
        for table in tables:
            for name, tensor in table.items():
                if tensor is not None and not _C.is_simulated(tensor):
                    owners.append((table, name, tensor))
    unique = list({id(tensor): tensor for _, _, tensor in owners}.values())
    adopted = dict(zip(map(id, unique), _simulated_like(unique, device), strict=True))
    for table, name, tensor in owners:
        table[name] = adopted[id(tensor)]

    def restore() -> None:
        for table, name, tensor in owners:
            table[name] = tensor

    return restore
