# SPDX-License-Identifier: BSD-3-Clause
"""What recomputing the ops of a module would cost and save."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple


@dataclass
class SACStats:
    """The ops of a module's forward, in their order; other fields refer to ops by their place.

    Times are in milliseconds, memory in bytes. `inplace_ops` are pairs of an op and the op that
    made its storage, or the op itself if that came from elsewhere. With `force_store_random`,
    random results are always stored.
    """

    func_names: list[str]
    runtimes: list[float]
    memory: list[int]
    view_like_ops: list[int]
    rand_ops: list[int]
    saved_autograd_ops: list[int]
    inplace_ops: list[tuple[int, int]]
    force_store_random: bool


class MSPS(NamedTuple):
    """An op, or a group of ops that stay together: bytes saved per millisecond of recomputation."""

    func_names: set[str]
    op_idx: int
    memory: int
    runtime: float
    msps: float


@dataclass
class SACTradeOffStats:
    """The share of time that is recomputed for each share of memory that is discarded.

    The lines `slopes[i] * x + intercepts[i]`, from `fit_breaks[i]` to `fit_breaks[i + 1]`, are a
    bound of the curve from above.
    """

    n_segments: int
    slopes: list[float]
    intercepts: list[float]
    fit_breaks: list[float]
    tradeoff_curve: OrderedDict[float, float]
    sac_memory: int
    sac_runtime: float


@dataclass
class SACGreedyOrderMeta:
    """Which ops are always recomputed or stored, which stay together, and the others in the order
    in which it pays to recompute them."""

    recomputed_ops: set[int]
    stored_ops: set[int]
    inplace_op_groups: dict[int, set[int]]
    random_ops_group: dict[int, set[int]]
    msps_meta: list[MSPS]


def group_of(order: SACGreedyOrderMeta, op: int) -> set[int]:
    """The ops that are recomputed or stored together with this one, and itself."""
    return {op, *order.inplace_op_groups.get(op, ()), *order.random_ops_group.get(op, ())}
