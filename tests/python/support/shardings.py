# SPDX-License-Identifier: BSD-3-Clause
"""Empties DTensor's caches of shardings, and counts cache misses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any
from unittest import mock

from torch.distributed.tensor._decompositions import DecompShardingStrategy
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.distributed.tensor.debug import _clear_sharding_prop_cache


def forget_shardings() -> None:
    """The next operators compute their shardings again, on DTensor's own tensors."""
    _clear_sharding_prop_cache()  # the Python and the C++ cache
    ShardingPropagator._propagate_tensor_meta_cached.cache_clear()


@dataclass
class Propagations:
    on_fakes: int = 0
    by_decomposition: int = 0


@contextmanager
def counted_propagations() -> Iterator[Propagations]:
    """Enter it before a tracker, so that the tracker's patches come on top."""
    counts = Propagations()

    def counting(owner: type, name: str, count: str) -> Any:
        original = getattr(owner, name)

        @wraps(original)
        def wrapper(*args: Any) -> Any:
            setattr(counts, count, getattr(counts, count) + 1)
            return original(*args)

        return mock.patch.object(owner, name, wrapper)

    with (
        counting(ShardingPropagator, "_propagate_tensor_meta_non_cached", "on_fakes"),
        counting(DecompShardingStrategy, "propagate_strategy", "by_decomposition"),
    ):
        yield counts
