# SPDX-License-Identifier: BSD-3-Clause
"""In which order to recompute the ops of a module, and the curve of memory against time."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

from tidegauge.planning.sac_stats import (
    MSPS,
    SACGreedyOrderMeta,
    SACStats,
    SACTradeOffStats,
    group_of,
)

_SHIFT = 1e-2  # of discarded memory; it keeps the first point above 0
_MOST_BREAKS = 100


def order_greedily(stats: SACStats) -> SACGreedyOrderMeta:
    """Ops that save most bytes per millisecond come first.

    Each op is in one group: in-place ops with the op that made their storage, and all random ops
    with all that is in place with one of them. A group that writes into a storage from outside is
    stored, and so are random ops if the statistics say so. Views are recomputed.
    """
    in_place: dict[int, set[int]] = {}
    for op, head in stats.inplace_ops:
        in_place.setdefault(head, {head}).add(op)
    from_outside = {op for op, head in stats.inplace_ops if op == head}
    random: dict[int, set[int]] = {}
    if stats.rand_ops:
        random[min(stats.rand_ops)] = set(stats.rand_ops)
    groups: list[set[int]] = []
    for group in [*random.values(), *in_place.values()]:  # joined if they have an op in common
        joined = set(group).union(*(each for each in groups if each & group))
        groups = [each for each in groups if not each & group] + [joined]
    heads = {min(group): group for group in groups}
    for op in random:
        random[op] = next(group for group in groups if op in group)
    in_place = {op: group for op, group in heads.items() if not group & set(stats.rand_ops)}
    heads = in_place | random
    views = set(stats.view_like_ops).difference(*heads.values())
    alone = set(range(len(stats.memory))).difference(views, *heads.values())
    heads |= {op: {op} for op in alone}
    stored = {
        head
        for head, group in heads.items()
        if group & from_outside or (stats.force_store_random and group & set(stats.rand_ops))
    }
    candidates = [_rate(stats, head, group) for head, group in heads.items() if head not in stored]
    candidates.sort(key=lambda each: (-each.msps, each.op_idx))
    return SACGreedyOrderMeta(views, stored, in_place, random, candidates)


def _rate(stats: SACStats, head: int, group: Iterable[int]) -> MSPS:
    group = sorted(group)
    memory = sum(stats.memory[op] for op in group)
    runtime = sum(stats.runtimes[op] for op in group)
    rate = memory / runtime if runtime > 0 else sys.float_info.max
    return MSPS({stats.func_names[op] for op in group}, head, memory, runtime, rate)


def list_discards(order: SACGreedyOrderMeta) -> list[tuple[set[int], MSPS | None]]:
    """The groups of ops in the order in which they are discarded: views, candidates, stored ops."""
    return [
        *(({op}, None) for op in sorted(order.recomputed_ops)),
        *((group_of(order, each.op_idx), each) for each in order.msps_meta),
        *((group_of(order, op), None) for op in sorted(order.stored_ops)),
    ]


def fit_tradeoff(stats: SACStats, order: SACGreedyOrderMeta, n_segments: int) -> SACTradeOffStats:
    """The curve of the greedy order and the connected lines nearest to it, by least squares.

    Each discard is charged with the time of the next one, because an op cannot be discarded in
    part. The lines are found by trying all points as breaks, one break after the other.
    """
    memory, runtime = sum(stats.memory), sum(stats.runtimes)
    curve = _find_curve(stats, order, memory, runtime)
    x, y = list(curve)[:-1], list(curve.values())[1:]
    breaks: list[float] = []
    if len(x) < 2:
        breaks, slopes, intercepts = [0.0, 1.0], [0.0], [max(curve.values(), default=0.0)]
    else:
        inner: list[float] = []
        for _ in range(max(min(len(x) - 2, n_segments), 1) - 1):
            spread = x[1:-1][:: -(-len(x) // _MOST_BREAKS)]
            inner = min(
                ([*inner, each] for each in spread if each not in inner),
                key=lambda each: _fit(x, y, each)[0],
                default=inner,
            )
        breaks = [x[0], *sorted(inner), x[-1]]
        _, slopes, intercepts = _fit(x, y, inner)
    return SACTradeOffStats(len(slopes), slopes, intercepts, breaks, curve, memory, runtime)


def _find_curve(
    stats: SACStats, order: SACGreedyOrderMeta, memory: int, runtime: float
) -> OrderedDict[float, float]:
    curve: OrderedDict[float, float] = OrderedDict()
    if not memory or not runtime:
        return curve
    views = len(order.recomputed_ops)
    size, time = 0, 0.0
    for place, (ops, _) in enumerate([(set[int](), None), *list_discards(order)]):
        size += sum(stats.memory[op] for op in ops)
        time += sum(stats.runtimes[op] for op in ops)
        if place >= views:  # views are never a choice
            curve[size / memory + _SHIFT] = time / runtime
    return curve


def _fit(
    x: list[float], y: list[float], inner: list[float]
) -> tuple[float, list[float], list[float]]:
    """The squared error, and slopes and intercepts from left to right."""
    numpy: Any = import_module("numpy")
    points = numpy.array(x)
    hinges = [numpy.maximum(0.0, points - each) for each in sorted(inner)]
    columns = numpy.stack([numpy.ones_like(points), points, *hinges], axis=1)
    weights, *_ = numpy.linalg.lstsq(columns, numpy.array(y), rcond=None)
    error = float(((columns @ weights - y) ** 2).sum())
    slopes, intercepts = [float(weights[1])], [float(weights[0])]
    for each, bend in zip(sorted(inner), weights[2:], strict=True):
        slopes.append(slopes[-1] + float(bend))
        intercepts.append(intercepts[-1] - float(bend) * each)
    return error, slopes, intercepts


def plot_tradeoff(tradeoff: SACTradeOffStats, name: str) -> None:
    """Writes `tradeoff_graphs/NAME.png`."""
    try:
        plot: Any = import_module("matplotlib.pyplot")
    except ImportError as error:
        raise ImportError("plots need matplotlib: run `pip install matplotlib`") from error
    folder = Path("tradeoff_graphs")
    folder.mkdir(exist_ok=True)
    plot.figure()
    plot.plot(list(tradeoff.tradeoff_curve), list(tradeoff.tradeoff_curve.values()), "x")
    for i, (slope, intercept) in enumerate(zip(tradeoff.slopes, tradeoff.intercepts, strict=True)):
        ends = tradeoff.fit_breaks[i : i + 2]
        plot.plot(ends, [slope * each + intercept for each in ends], "-")
    plot.xlabel("Memory discarded / Total memory")
    plot.ylabel("Recomp time / Total recomp time")
    plot.title(name)
    plot.savefig(folder / f"{name}.png")
    plot.close()
