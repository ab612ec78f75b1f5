# SPDX-License-Identifier: BSD-3-Clause
"""A process group that the program itself makes inside a simulation: only this rank exists."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import Any

import torch.distributed as dist


def make_group(torchs: Callable[..., Any], args: Any, kwargs: Any) -> bool:
    """Makes torch's fake backend the default group. False if there is a default group already.

    `args`, `kwargs`: those of `init_process_group`. As torch does it, the rank and the number of
    ranks come from the environment if they are not given.
    """
    if dist.is_initialized():
        return False
    from torch.testing._internal.distributed.fake_pg import FakeStore

    given = inspect.signature(torchs).bind(*args, **kwargs).arguments
    torchs(
        "fake",
        rank=_find(given, "rank", "RANK"),
        world_size=_find(given, "world_size", "WORLD_SIZE"),
        store=FakeStore(),
    )
    return True


def _find(given: dict[str, Any], name: str, variable: str) -> int:
    value = given.get(name, -1)
    if value < 0:
        value = int(os.environ.get(variable, "-1"))
    if value < 0:
        raise ValueError(
            f"init_process_group inside `simulate` needs {name} or the environment variable "
            f"{variable}; or use simulate(world_size=..., rank=...)"
        )
    return int(value)
