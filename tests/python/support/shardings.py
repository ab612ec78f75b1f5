# SPDX-License-Identifier: BSD-3-Clause
"""Empties DTensor's caches of shardings, and counts cache misses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any
from unittest import mock

from torch.distributed.tensor import debug
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch_version import NO_DECOMPOSED_SHARDINGS

DecompShardingStrategy: Any = None
if not NO_DECOMPOSED_SHARDINGS:
    from torch.distributed.tensor._decompositions import DecompShardingStrategy

_CACHED_META: Any = getattr(
    ShardingPropagator,
    "_propagate_tensor_meta_cached",
    getattr(ShardingPropagator, "_propagate_tensor_meta", None),  # its older name
)

needs_decompositions = NO_DECOMPOSED_SHARDINGS.skips


def forget_shardings() -> None:
    """The next operators compute their shardings again, on DTensor's own tensors."""
    debug._clear_python_sharding_prop_cache()
    debug._clear_fast_path_sharding_prop_cache()  # of C++
    _CACHED_META.cache_clear()


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

    with ExitStack() as patches:
        patches.enter_context(
            counting(ShardingPropagator, "_propagate_tensor_meta_non_cached", "on_fakes")
        )
        if DecompShardingStrategy is not None:
            patches.enter_context(
                counting(DecompShardingStrategy, "propagate_strategy", "by_decomposition")
            )
        yield counts
