# SPDX-License-Identifier: BSD-3-Clause
"""The storages of any kind of tensor; a drop-in for torch.distributed._tools."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch._C import _functorch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

__all__ = ["get_untyped_storages"]

_ROW_COMPRESSED = (torch.sparse_csr, torch.sparse_bsr)
_COLUMN_COMPRESSED = (torch.sparse_csc, torch.sparse_bsc)


def get_untyped_storages(t: torch.Tensor) -> set[torch.UntypedStorage]:
    """The storages of a tensor, which may be sparse, nested or a wrapper subclass.

    A tensor with an opaque layout (MKL-DNN) has none. Warns if an argument is not a tensor.
    """
    storages: set[torch.UntypedStorage] = set()
    pending: list[Any] = [t]
    while pending:
        tensor = pending.pop()
        if not isinstance(tensor, torch.Tensor):
            warnings.warn(
                "Expected a tensor or a traceable wrapper-subclass of tensor, "
                f"but got {type(tensor)}",
                stacklevel=2,
            )
        elif parts := _parts(tensor):
            pending.extend(parts)
        elif torch._C._has_storage(tensor):
            storages.add(tensor.untyped_storage())
    return storages


def _parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The tensors that hold the bytes of a tensor without its own storage; else empty."""
    if is_traceable_wrapper_subclass(tensor):
        names, _ = tensor.__tensor_flatten__()  # some may be opaque objects without memory
        return [part for name in names if isinstance(part := getattr(tensor, name), torch.Tensor)]
    if _functorch.is_batchedtensor(tensor) or _functorch.is_gradtrackingtensor(tensor):
        return [_functorch.get_unwrapped(tensor)]
    if tensor.layout is torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout in _ROW_COMPRESSED:
        tensor = tensor.detach()
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in _COLUMN_COMPRESSED:
        tensor = tensor.detach()
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    return []
