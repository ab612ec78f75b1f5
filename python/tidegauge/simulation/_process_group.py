# SPDX-License-Identifier: BSD-3-Clause
"""The process group of a simulation: any number of ranks, of which only this one exists."""

from __future__ import annotations

import torch.distributed as dist


class OwnProcessGroup:
    """torch's fake backend as the default group, from `begin` to `end`."""

    def __init__(self, world_size: int, rank: int) -> None:
        if not isinstance(world_size, int) or world_size < 1:
            raise ValueError(f"world_size is {world_size!r}; a number of ranks from 1 is expected")
        if not isinstance(rank, int) or not 0 <= rank < world_size:
            raise ValueError(f"rank is {rank!r}; 0 to {world_size - 1} exist of {world_size} ranks")
        self._world_size = world_size
        self._rank = rank

    def begin(self) -> None:
        if dist.is_initialized():
            raise RuntimeError(
                f"simulate(world_size={self._world_size}) makes a process group, and there is one "
                "already; destroy it first, or leave world_size out to simulate with it"
            )
        from torch.testing._internal.distributed.fake_pg import FakeStore

        dist.init_process_group(
            "fake", rank=self._rank, world_size=self._world_size, store=FakeStore()
        )

    def end(self) -> None:
        if dist.is_initialized():
            dist.destroy_process_group()
