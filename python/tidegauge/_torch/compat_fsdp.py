# SPDX-License-Identifier: BSD-3-Clause
"""What differs between the FSDP2 of the torch versions that we know.

Older versions have one param group per module, and no name for a list of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


def groups_of(state: Any) -> list[Any]:
    """The param groups of a sharded module, by its FSDP2 state."""
    groups: list[Any] | None = getattr(state, "_fsdp_param_groups", None)
    if groups is not None:
        return groups
    group = state._fsdp_param_group
    return [] if group is None else [group]


def index_of(group: Any) -> int:
    """The position of a param group among those of its module."""
    return int(getattr(group, "_param_group_index", 0))


# Called several times per group and step, so these two make no further calls of Python.


def is_first(group: Any) -> bool:
    return bool(getattr(group, "_param_group_index", 0) == 0)


def is_last(group: Any) -> bool:
    count = getattr(group, "_num_param_groups", 1)
    return bool(count == 1 or group._param_group_index == count - 1)


def read_reduction(
    result: Sequence[Any],
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """Of the result of `foreach_reduce`: the inputs of its reduce-scatter and its all-reduce, and
    the output that still waits for an all-reduce."""
    if len(result) not in (6, 7):  # without and with a stream
        raise ValueError(f"foreach_reduce returned {len(result)} values (expected 6 or 7)")
    return result[0], result[-3], result[-1]
