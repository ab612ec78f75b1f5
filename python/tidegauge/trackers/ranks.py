# SPDX-License-Identifier: BSD-3-Clause
"""Collects and compares the figures of all ranks."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from torch import distributed as dist
from torch._subclasses.fake_tensor import unset_fake_temporarily

from tidegauge import _C

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

Figures = dict[str, dict[str, int]]
"""bytes by kind of device and category"""
Model = dict[str, int]
"""the number of parameters of each unit"""


def gather(own: Figures, model: Model, group: ProcessGroup | None) -> list[Figures] | None:
    """The figures of all ranks of `group` on its rank 0, None on the others.

    Warns if the ranks have different models: then their figures cannot be compared.
    """
    if not dist.is_initialized():
        raise RuntimeError(
            "gather() needs a process group, but none is initialized. Call it before "
            "destroy_process_group, or use get_tracker_snapshot, which needs none"
        )
    ranks: list[Any] = [None] * dist.get_world_size(group)
    with _C.UnseenRegion(), unset_fake_temporarily():
        dist.all_gather_object(ranks, (own, model), group)
    if dist.get_rank(group) != 0:
        return None
    for rank, (_, other) in enumerate(ranks):
        if (difference := _find_difference(model, other, rank)) is not None:
            warnings.warn(
                f"the ranks have different models: {difference}. Their figures are gathered "
                "anyway; use the same model on all ranks, or pass a group of ranks that share one",
                stacklevel=3,
            )
            break
    return [figures for figures, _ in ranks]


def _find_difference(mine: Model, other: Model, rank: int) -> str | None:
    for unit in mine:
        if unit not in other:
            return f"rank {rank} has no unit '{unit}', which rank 0 has"
        if mine[unit] != other[unit]:
            return f"unit '{unit}' has {other[unit]} parameters on rank {rank}, {mine[unit]} on 0"
    for unit in other:
        if unit not in mine:
            return f"rank {rank} has a unit '{unit}', which rank 0 does not have"
    return None


def compare(sizes: list[int]) -> dict[str, Any]:
    least, most = min(sizes), max(sizes)
    return {
        "min": least,
        "min_rank": sizes.index(least),
        "max": most,
        "max_rank": sizes.index(most),
        "all": sizes,
    }
