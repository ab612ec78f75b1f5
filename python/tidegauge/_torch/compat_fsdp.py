# SPDX-License-Identifier: BSD-3-Clause
"""What differs between the FSDP2 of the torch versions that we know.

Older versions have one param group per module, and no name for a list of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tidegauge._torch.compat import has_fsdp_group_lists

_HAS_GROUP_LISTS = has_fsdp_group_lists()
#: The attributes of an FSDPParamGroup and of an FSDPState that this file reads.
GROUP_ATTRIBUTES = ("_param_group_index", "_num_param_groups") if _HAS_GROUP_LISTS else ()
STATE_ATTRIBUTES = ("_fsdp_param_groups",) if _HAS_GROUP_LISTS else ("_fsdp_param_group",)


def groups_of(state: Any) -> list[Any]:
    """The param groups of a sharded module, by its FSDP2 state."""
    if _HAS_GROUP_LISTS:
        groups: list[Any] = state._fsdp_param_groups
        return groups
    group = state._fsdp_param_group
    return [] if group is None else [group]


# Called several times per group and step, so these make no further calls of Python.


def index_of(group: Any) -> int:
    """The position of a param group among those of its module."""
    return int(group._param_group_index) if _HAS_GROUP_LISTS else 0


def is_first(group: Any) -> bool:
    return not _HAS_GROUP_LISTS or bool(group._param_group_index == 0)


def is_last(group: Any) -> bool:
    return not _HAS_GROUP_LISTS or bool(group._param_group_index == group._num_param_groups - 1)


def read_reduction(
    result: Sequence[Any],
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """Of the result of `foreach_reduce`: the inputs of its reduce-scatter and its all-reduce, and
    the output that still waits for an all-reduce."""
    if len(result) not in (6, 7):  # without and with a stream
        raise ValueError(f"foreach_reduce returned {len(result)} values (expected 6 or 7)")
    return result[0], result[-3], result[-1]
