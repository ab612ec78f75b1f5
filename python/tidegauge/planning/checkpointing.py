# SPDX-License-Identifier: BSD-3-Clause
"""Chooses which modules, and which of their ops, to recompute under a memory budget."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterator
from enum import IntEnum

from tidegauge.planning.linear_program import LinearProgram
from tidegauge.planning.module_graph import (
    Graph,
    Node,
    is_submodule,
    memory_of_step,
    memory_without_plan,
)
from tidegauge.planning.sac_stats import SACStats

_GIB = 2**30
_STEPS = 10_000  # a discarded share has four decimals
_logger = logging.getLogger(__name__)

NO_PLAN: tuple[dict[str, float], float, int] = ({}, 0, -1)


class SACDecision(IntEnum):
    RECOMPUTE = 0
    SAVE = 1


def sac_milp(
    graph: Graph,
    memory_budget: float,
    world_size: int = 1,
    ac_units: Collection[str] | None = None,
    fsdp_units: Collection[str] | None = None,
) -> tuple[dict[str, float], float, int]:
    """The plan with the least recomputation whose peak stays below `memory_budget` GiB.

    Returns the share of its activations that each checkpointed module discards, the milliseconds of
    recomputation, and the peak in bytes. If there is no such plan, returns `({}, 0, -1)`.

    Parameters, gradients and optimizer states are divided by `world_size`. Only modules of
    `ac_units` are checkpointed, none that contains a unit of `fsdp_units`, and none within another.
    With `fsdp_units`, the gathered parameters and gradients of the running units count, and the
    parameters of the next one.
    """
    solution = _Plan(graph, world_size, set(fsdp_units or ())).solve(
        memory_budget * _GIB, None if not ac_units else set(ac_units)
    )
    return NO_PLAN if solution is None else solution


class _Plan:
    """The program: module i is checkpointed (y = 1) and discards the share r of what it could.

    Minimise the sum of t under
        r <= y,  r >= least * y            a smaller share would save nothing
        t >= time * (slope * r + intercept * y)    for each segment of its curve
        memory(i) - sum of discarded(j) + work(i) * y(i) <= budget
    where j ends its forward before i does, and discarded = possible * r - (possible - saved) * y:
    checkpointing also keeps results that would not have been saved.
    """

    def __init__(self, graph: Graph, world_size: int, fsdp_units: set[str]) -> None:
        self._graph = graph
        self._fsdp_units = fsdp_units
        gathered = _gathered_bytes(graph, fsdp_units)
        self._memory = [
            memory_without_plan(graph, i, world_size) + gathered[i] for i in range(len(graph.nodes))
        ]
        self._step = memory_of_step(graph, world_size)

    def solve(
        self, budget: float, ac_units: set[str] | None
    ) -> tuple[dict[str, float], float, int] | None:
        if self._step > budget:
            return None
        program = LinearProgram()
        choices: dict[int, tuple[int, int]] = {}
        for node in self._graph.nodes:
            if self._may_recompute(node, ac_units):
                choices[node["index"]] = self._add_choice(program, node)
        for i in choices:
            for j in choices:
                if i < j and self._graph.ad_matrix[i][j]:
                    program.constrain({choices[i][0]: 1, choices[j][0]: 1}, at_most=1)
        # Rounded shares may discard less than the program chose, by 2 KiB and the last decimal.
        for node in self._graph.nodes:
            terms = list(self._discarded_before(node, choices))
            if node["index"] in choices and (work := node.get("recompute_work", 0)):
                terms.append((choices[node["index"]][0], work / _GIB))
            limit = (budget - self._memory[node["index"]]) / _GIB
            if terms or limit < 0:
                program.constrain(terms, at_most=limit)
        solution = program.solve(gap=1e-4)
        if solution is None:
            return None
        if solution.gap > 1e-3:
            _logger.warning(
                "the search for a plan ran out of time: recomputation may be %.1f %% longer than "
                "necessary",
                100 * solution.gap,
            )
        shares = {
            i: _rounded_up(solution.values[share])
            for i, (chosen, share) in choices.items()
            if round(solution.values[chosen]) == 1
        }
        names = {self._graph.nodes[i]["fqn"]: share for i, share in shares.items()}
        time = sum(_recompute_time(self._graph.nodes[i], share) for i, share in shares.items())
        return names, round(time, 4), self._find_peak(shares)

    def _may_recompute(self, node: Node, ac_units: set[str] | None) -> bool:
        return (
            not node["is_leaf"]
            and _possible(node) > 0
            and (ac_units is None or node["fqn"] in ac_units)
            and not any(is_submodule(unit, node["fqn"]) for unit in self._fsdp_units)
        )

    def _add_choice(self, program: LinearProgram, node: Node) -> tuple[int, int]:
        chosen = program.add_variable(upper=1, integer=True)
        share = program.add_variable(upper=1)
        time = program.add_variable(cost=1)
        least = 1 - node["act_fw_per_module"] / _possible(node)
        program.constrain({chosen: 1, share: -1}, at_least=0)
        program.constrain({share: 1, chosen: -least}, at_least=0)
        for slope, intercept in zip(node["slopes"], node["intercepts"], strict=True):
            factor = node["sac_runtime"]
            program.constrain(
                {time: 1, share: -slope * factor, chosen: -intercept * factor}, at_least=0
            )
        return chosen, share

    def _discarded_before(
        self, node: Node, choices: dict[int, tuple[int, int]]
    ) -> Iterator[tuple[int, float]]:
        for i, (chosen, share) in choices.items():
            other = self._graph.nodes[i]
            if other["pos_fw_post_order"] < node["pos_fw_post_order"]:
                yield share, -_possible(other) / _GIB
                yield chosen, (_possible(other) - other["act_fw_per_module"]) / _GIB

    def _find_peak(self, shares: dict[int, float]) -> int:
        """Of the plan: the variables of the program may be anywhere below the budget."""
        peak = self._step
        for node in self._graph.nodes:
            memory = self._memory[node["index"]]
            for i, share in shares.items():
                other = self._graph.nodes[i]
                if other["pos_fw_post_order"] < node["pos_fw_post_order"]:
                    kept = _possible(other) * (1 - share)
                    memory -= other["act_fw_per_module"] - kept
            if node["index"] in shares:
                memory += node.get("recompute_work", 0)
            peak = max(peak, memory)
        return math.ceil(peak)


def _possible(node: Node) -> int:
    """What a checkpoint could store. The trackers may see more than the ops explain."""
    return max(node["sac_memory"], node["act_fw_per_module"])


def _rounded_up(share: float) -> float:
    return min(1.0, math.ceil(share * _STEPS - 1e-3) / _STEPS)


def _recompute_time(node: Node, share: float) -> float:
    lines = zip(node["slopes"], node["intercepts"], strict=True)
    bounds = [slope * share + start for slope, start in lines]
    return node["sac_runtime"] * max(0.0, *bounds) if bounds else 0.0


def _gathered_bytes(graph: Graph, units: set[str]) -> list[float]:
    """What FSDP holds whole during the backward of each module: parameters and gradients of the
    units that run, and the parameters of the unit that it gathers ahead. 0 without units."""
    nodes = graph.nodes
    if not units:
        return [0.0] * len(nodes)
    is_unit = [i == 0 or node["fqn"] in units for i, node in enumerate(nodes)]

    def own(field_of: list[int], i: int) -> int:
        """Without the units below it."""
        inner = 0
        for j in range(i + 1, len(nodes)):
            below = [k for k in range(i + 1, j) if is_unit[k] and graph.ad_matrix[k][j]]
            if is_unit[j] and graph.ad_matrix[i][j] and not below:
                inner += field_of[j]
        return field_of[i] - inner

    parameters = [node["param_per_module"] for node in nodes]
    gradients = [node["grad_per_module"] for node in nodes]
    whole = [own(parameters, i) if unit else 0 for i, unit in enumerate(is_unit)]
    reduced = [own(gradients, i) if unit else 0 for i, unit in enumerate(is_unit)]
    ahead = max(whole[1:], default=0)
    return [
        ahead + sum(whole[k] + reduced[k] for k in range(len(nodes)) if graph.ad_matrix[k][i])
        for i in range(len(nodes))
    ]


def get_optimal_checkpointing_policy_per_module(
    sac_stats: SACStats, memory_budget: float
) -> list[int]:
    """For each op of a module whether to save (1) or recompute (0) it, so that the recomputation
    is shortest. `memory_budget` is the share of the memory of all ops that may be saved.

    Returns an empty list if what must be saved exceeds the budget. Raises ValueError if the budget
    is not between 0 and 1.
    """
    if not 0 <= memory_budget <= 1:
        raise ValueError(f"`memory_budget` must be a float between 0 and 1. Got {memory_budget}.")
    limit = math.ceil(memory_budget * sum(sac_stats.memory))
    while True:
        choice = _find_policy(sac_stats, limit)
        saved = sum(m for m, save in zip(sac_stats.memory, choice, strict=False) if save)
        budget = math.ceil(memory_budget * sum(sac_stats.memory))
        if saved <= budget:
            return choice
        limit -= saved - budget  # the solver's tolerance is relative, ours is 0


def _find_policy(stats: SACStats, limit: int) -> list[int]:
    program = LinearProgram()
    save = [program.add_variable(cost=-time, upper=1, integer=True) for time in stats.runtimes]

    def fix(op: int, decision: SACDecision) -> None:
        program.constrain({save[op]: 1}, at_least=decision, at_most=decision)

    def tie(op: int, other: int) -> None:
        if op != other:
            program.constrain({save[op]: 1, save[other]: -1}, at_least=0, at_most=0)

    for op in stats.view_like_ops:
        fix(op, SACDecision.RECOMPUTE)
    for op in stats.rand_ops:
        if stats.force_store_random:
            fix(op, SACDecision.SAVE)
        else:
            tie(op, stats.rand_ops[0])
    for op, parent in stats.inplace_ops:
        if op == parent:
            fix(op, SACDecision.SAVE)
        tie(op, parent)
    scale = max(limit, 1)
    program.constrain(
        [(variable, size / scale) for variable, size in zip(save, stats.memory, strict=True)],
        at_most=limit / scale,
    )
    solution = program.solve()
    if solution is None:
        _logger.error("no policy: what must be saved exceeds %d bytes", limit)
        return []
    return [round(value) for value in solution.values]
