# SPDX-License-Identifier: BSD-3-Clause
"""The process group of a simulation: any number of ranks; only this one really exists."""

from __future__ import annotations

import torch.distributed as dist


class OwnProcessGroup:
    """Makes torch's fake backend the default group, from `begin` to `end`."""

    def __init__(self, world_size: int, rank: int) -> None:
        if not isinstance(world_size, int) or world_size < 1:
            raise ValueError(f"invalid world_size {world_size!r} (expected at least 1)")
        if not isinstance(rank, int) or not 0 <= rank < world_size:
            raise ValueError(
                f"invalid rank {rank!r} (expected 0 to {world_size - 1} for {world_size} ranks)"
            )
        self._world_size = world_size
        self._rank = rank
        self._is_begun = False

    def begin(self) -> None:
        if dist.is_initialized():
            raise RuntimeError(
                f"simulate(world_size={self._world_size}) cannot make a process group, because one "
                "already exists; destroy it first, or omit world_size to use it"
            )
        from torch.testing._internal.distributed.fake_pg import FakeStore

        self._is_begun = True
        dist.init_process_group(
            "fake", rank=self._rank, world_size=self._world_size, store=FakeStore()
        )

    def end(self) -> None:
        """Undoes `begin`, which may not have ended. Can be repeated after an interrupt."""
        if self._is_begun and dist.is_initialized():
            dist.destroy_process_group()
        self._is_begun = False
