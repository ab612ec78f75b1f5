# SPDX-License-Identifier: BSD-3-Clause
"""The process group of a simulation: any number of ranks; only this one really exists."""

from __future__ import annotations

import os
import sys

import torch.distributed as dist

_last_rank: tuple[int, int] | None = None  # and the world size, of the last simulation


def _forget_shardings() -> None:
    """DTensor caches local shapes without the rank: those of another rank may be different."""
    if "torch.distributed.tensor" not in sys.modules:
        return
    from torch.distributed.tensor import debug

    for name in ("_clear_python_sharding_prop_cache", "_clear_fast_path_sharding_prop_cache"):
        if (clear := getattr(debug, name, None)) is not None:
            clear()


class OwnProcessGroup:
    """Makes torch's fake backend the default group, from `begin` to `end`.

    Sets the environment variables of torchrun meanwhile. LOCAL_RANK and others that are set stay.
    """

    def __init__(self, world_size: int, rank: int, ranks_per_node: int = 8) -> None:
        if not isinstance(world_size, int) or world_size < 1:
            raise ValueError(f"invalid world_size {world_size!r} (expected at least 1)")
        if not isinstance(rank, int) or not 0 <= rank < world_size:
            raise ValueError(
                f"invalid rank {rank!r} (expected 0 to {world_size - 1} for {world_size} ranks)"
            )
        self._world_size = world_size
        self._rank = rank
        self._is_begun = False
        self._variables = {
            "RANK": rank,
            "WORLD_SIZE": world_size,
            "LOCAL_RANK": rank % ranks_per_node,
            "LOCAL_WORLD_SIZE": min(world_size, ranks_per_node),
            "MASTER_ADDR": "localhost",
            "MASTER_PORT": 29500,
        }
        self._variables_before: dict[str, str | None] = {}

    def begin(self) -> None:
        if dist.is_initialized():
            raise RuntimeError(
                f"simulate(world_size={self._world_size}) cannot make a process group, because one "
                "already exists; destroy it first, or omit world_size to use it"
            )
        from torch.testing._internal.distributed.fake_pg import FakeStore

        self._is_begun = True
        global _last_rank
        if _last_rank is not None and _last_rank != (self._rank, self._world_size):
            _forget_shardings()
        _last_rank = self._rank, self._world_size
        for name, value in self._variables.items():
            if name in ("RANK", "WORLD_SIZE") or name not in os.environ:
                self._variables_before[name] = os.environ.get(name)
                os.environ[name] = str(value)
        dist.init_process_group(
            "fake", rank=self._rank, world_size=self._world_size, store=FakeStore()
        )

    def end(self) -> None:
        """Undoes `begin`, which may not have ended. Can be repeated after an interrupt."""
        if self._is_begun and dist.is_initialized():
            dist.destroy_process_group()
        for name, value in self._variables_before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self._variables_before = {}
        self._is_begun = False
