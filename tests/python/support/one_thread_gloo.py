# SPDX-License-Identifier: BSD-3-Clause
"""Gloo with one thread. After `settle`, it holds no buffers of earlier collectives.

A gloo thread releases a collective and its tensors shortly after the collective is done; the
scheduler decides when. A group with one thread releases a collective before it runs the next one.
"""

from __future__ import annotations

import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

NAME = "one_thread_gloo"
BACKEND = f"cpu:{NAME}"
_TOKEN = torch.zeros(1)
_OWN_REFERENCES = sys.getrefcount(_TOKEN)


def _make_group(
    store: dist.Store, rank: int, size: int, timeout: timedelta
) -> dist.ProcessGroupGloo:
    options = dist.ProcessGroupGloo._Options()
    options._threads = 1
    options._timeout = timeout
    options._devices = [dist.ProcessGroupGloo.create_default_device()]
    return dist.ProcessGroupGloo(store, rank, size, options)


def init_one_thread_gloo(store: dist.Store, rank: int, world_size: int) -> None:
    if not hasattr(dist.Backend, NAME.upper()):
        dist.Backend.register_backend(NAME, _make_group, devices=["cpu"])
    dist.init_process_group(
        BACKEND,
        store=store,
        rank=rank,
        world_size=world_size,
        timeout=timedelta(seconds=200),
    )


def settle() -> None:
    """Waits until no gloo thread holds a tensor of an earlier collective. All ranks must call it.
    Groups of other kinds have no such threads."""
    if not dist.is_initialized() or dist.get_backend() != BACKEND:
        return
    # Not a barrier, which would keep the earlier works alive. No tracker sees this collective.
    for group in dist.distributed_c10d._world.pg_map:
        group._get_backend(torch.device("cpu")).allreduce([_TOKEN]).wait()
        # The thread needs the GIL to drop this last collective, but the end of a group waits for
        # the thread while it holds the GIL.
        while sys.getrefcount(_TOKEN) > _OWN_REFERENCES:
            time.sleep(0.0001)
