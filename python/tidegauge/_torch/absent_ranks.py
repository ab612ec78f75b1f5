# SPDX-License-Identifier: BSD-3-Clause
"""Process groups of which only this rank exists: nothing waits for the others.

The store answers for them, NCCL is the stand-in's, and gloo is torch's fake backend: collectives
act as if every rank had sent what this rank sends.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from datetime import timedelta
from importlib import import_module
from typing import Any

import torch.distributed as dist

from tidegauge._torch.absent_messages import REPLACED
from tidegauge._torch.patching import Installation, Patch

# What another rank would have written: the size of an NCCL id, which is all that torch checks.
_FROM_ANOTHER_RANK = bytes(128)


class LoneStore(dist.Store):  # type: ignore[misc, name-defined]
    """A key-value store in which a key that nobody set was set by another rank."""

    def __init__(self) -> None:
        super().__init__()
        self._values: dict[str, bytes] = {}
        self._timeout = timedelta(minutes=30)

    def set(self, key: str, value: Any) -> None:
        self._values[key] = value if isinstance(value, bytes) else str(value).encode()

    def get(self, key: str) -> bytes:
        return self._values.get(key, _FROM_ANOTHER_RANK)

    def multi_get(self, keys: list[str]) -> list[bytes]:
        return [self.get(key) for key in keys]

    def multi_set(self, keys: list[str], values: list[Any]) -> None:
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def append(self, key: str, value: Any) -> None:
        added = value if isinstance(value, bytes) else str(value).encode()
        self._values[key] = self._values.get(key, b"") + added

    def add(self, key: str, value: int) -> int:
        total = int(self._values.get(key, b"0")) + value
        self._values[key] = str(total).encode()
        return total

    def compare_set(self, key: str, expected_value: Any, desired_value: Any) -> bytes:
        if key not in self._values or self._values[key] == str(expected_value).encode():
            self.set(key, desired_value)
        return self._values[key]

    def delete_key(self, key: str) -> bool:
        return self._values.pop(key, None) is not None

    def num_keys(self) -> int:
        return len(self._values)

    def check(self, keys: list[str]) -> bool:
        return all(key in self._values for key in keys)

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        """Returns at once: the others were faster."""

    def set_timeout(self, timeout: timedelta) -> None:
        self._timeout = timeout

    @property
    def timeout(self) -> timedelta:
        return self._timeout

    def clone(self) -> LoneStore:
        return self

    def has_extended_api(self) -> bool:
        return True


_STORES: list[LoneStore] = []  # torch's C++ does not keep the Python object alive


def _make_store(*args: Any, **kwargs: Any) -> LoneStore:
    _STORES.append(LoneStore())
    return _STORES[-1]


def _skip_barrier(*args: Any, **kwargs: Any) -> None:
    """All ranks have arrived."""


def _make_gloo(store: Any, rank: int, size: int, *args: Any, **kwargs: Any) -> Any:
    from torch.testing._internal.distributed.fake_pg import FakeProcessGroup

    options = FakeProcessGroup.Options()
    if hasattr(options, "simulate_uniform_ranks"):
        options.simulate_uniform_ranks = True
    return FakeProcessGroup._create_internal(rank, size, options)


def _init_simulated(*args: Any, **kwargs: Any) -> None:
    """Of any backend, but without messages: a simulated tensor has no data to send."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    rank = int(os.environ.get("RANK", "0"))
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    _variables["init"]("fake", rank=rank, world_size=ranks, store=FakeStore())


def _skip_split_source(*args: Any, **kwargs: Any) -> None:
    """New groups get communicators of their own."""


def _split_group(
    parent_pg: Any = None, split_ranks: list[list[int]] | None = None, *args: Any, **kwargs: Any
) -> Any:
    rank = dist.get_rank(parent_pg)
    own = next((ranks for ranks in split_ranks or () if rank in ranks), [])
    ctypes.CDLL(None).tidegauge_standin_set_split_ranks(len(own))
    return _variables["torch.distributed:split_group"](parent_pg, split_ranks, *args, **kwargs)


_STORE_NAMES = ("TCPStore", "FileStore")
_variables: dict[str, Any] = {}


def _make_patches() -> dict[str, Patch]:
    replaced: dict[str, Callable[..., Any]] = {
        "torch.distributed.rendezvous:_create_c10d_store": _make_store,
        "torch.distributed.distributed_c10d:_store_based_barrier": _skip_barrier,
        "torch.distributed.distributed_c10d:ProcessGroupGloo": _make_gloo,
        "torch.distributed.distributed_c10d:_get_split_source": _skip_split_source,
        "torch.distributed:split_group": _split_group,
        "torch.distributed.distributed_c10d:split_group": _split_group,
        "torch.distributed.device_mesh:split_group": _split_group,
    }
    for name, new in REPLACED.items():
        replaced[f"torch.distributed:{name}"] = new
        replaced[f"torch.distributed.distributed_c10d:{name}"] = new
    for name in _STORE_NAMES:
        replaced[f"torch.distributed:{name}"] = _make_store
        replaced[f"torch.distributed.rendezvous:{name}"] = _make_store
    # Some are not in every version of torch, which then does not use them.
    return {place: Patch(place, new) for place, new in replaced.items() if _exists(place)}


def _exists(place: str) -> bool:
    module, _, name = place.partition(":")
    return hasattr(import_module(module), name)


#: For torch's real process groups over the stand-in for NCCL.
FOR_ABSENT_RANKS = Installation(_make_patches(), _variables)
#: For simulated tensors.
FOR_SIMULATED_RANKS = Installation(
    {
        "init": Patch("torch.distributed.distributed_c10d:init_process_group", _init_simulated),
        "init_alias": Patch("torch.distributed:init_process_group", _init_simulated),
    },
    _variables,
)
