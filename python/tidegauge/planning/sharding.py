# SPDX-License-Identifier: BSD-3-Clause
"""Chooses which modules FSDP shards as units, under a memory budget."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum

from tidegauge.planning.linear_program import LinearProgram
from tidegauge.planning.module_graph import Graph, memory_without_plan

_GIB = 2**30


class CommType(Enum):
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"


@dataclass
class CommParams:
    """A collective takes `latency` ms and one ms for each `bandwidth` bytes."""

    latency: float
    bandwidth: float

    def time(self, size: float) -> float:
        return self.latency + size / self.bandwidth


def fsdp_milp(
    graph: Graph,
    world_size: int,
    comm_params: Mapping[CommType, CommParams],
    memory_budget: float,
    fsdp_units: Collection[str] | None = None,
) -> tuple[set[str], float, int]:
    """The FSDP units with the least exposed communication whose peak is below `memory_budget` GiB.

    Returns their names, the milliseconds of a step in which it waits for communication, and the
    peak in bytes. If there is no such choice, returns `(set(), 0, -1)`. With `fsdp_units` nothing
    is chosen: the root and these are the units.

    The root is always a unit, and no other unit is within another. Each unit gathers the next one
    ahead, in forward and backward, and reduces the gradients of the previous one meanwhile.
    """
    return _Units(graph, world_size, comm_params, memory_budget, fsdp_units).solve()


class _Units:
    """The program: the units follow each other in the order of the forward, so a choice is a path
    from the root through some of the modules. A variable for each step of the path says that unit
    j follows unit i, and then all times are constants, but for those of the root, whose size is
    what the others leave."""

    def __init__(
        self,
        graph: Graph,
        world_size: int,
        comm_params: Mapping[CommType, CommParams],
        memory_budget: float,
        fsdp_units: Collection[str] | None,
    ) -> None:
        self._nodes = graph.nodes
        self._below = graph.ad_matrix
        self._world_size = world_size
        self._graph = graph
        self._budget = memory_budget * _GIB
        self._gather = comm_params[CommType.ALL_GATHER]
        self._reduce = comm_params[CommType.REDUCE_SCATTER]
        self._required = set(fsdp_units or ())
        self._units = [
            i
            for i, node in enumerate(self._nodes)
            if i > 0
            and (node["fqn"] in self._required if self._required else node["param_per_module"] > 0)
        ]

    def solve(self) -> tuple[set[str], float, int]:
        program = LinearProgram()
        first = {j: self._add_step(program, 0, j) for j in self._units}
        last = {i: program.add_variable(upper=1, integer=True) for i in self._units}
        steps = {
            (i, j): self._add_step(program, i, j)
            for i in self._units
            for j in self._units
            if i < j and not self._below[i][j]
        }
        chosen = {i: program.add_variable(upper=1, integer=True) for i in self._units}
        for i in self._units:
            before = [(first[i], 1.0), *((var, 1.0) for (_, j), var in steps.items() if j == i)]
            after = [(last[i], 1.0), *((var, 1.0) for (h, _), var in steps.items() if h == i)]
            program.constrain([*before, (chosen[i], -1.0)], at_least=0, at_most=0)
            program.constrain([*after, (chosen[i], -1.0)], at_least=0, at_most=0)
            if self._required:
                program.constrain({chosen[i]: 1}, at_least=1)
            self._add_backward_wait(program, i, steps, chosen[i])
        program.constrain(dict.fromkeys(first.values(), 1.0), at_most=1)
        self._limit_memory(program, chosen)
        solution = program.solve(gap=1e-6)
        if solution is None:
            return set(), 0, -1
        units = [i for i in self._units if round(solution.values[chosen[i]]) == 1]
        peak = self._find_peak(units)
        if peak > self._budget + 2048:  # the tolerance of the solver, 1e-6 GiB, and rounding
            return set(), 0, -1
        names = {self._nodes[i]["fqn"] for i in [0, *units]}
        return names, round(self._find_wait(units), 4), math.ceil(peak)

    def _add_step(self, program: LinearProgram, i: int, j: int) -> int:
        """Its cost is what the gather of j takes longer than the forward of i."""
        parameters = self._nodes[j]["param_per_module"]
        gather = self._gather.time(parameters)
        if i > 0:
            wait = max(0.0, gather - self._nodes[i]["fw_runtime_per_module"])
        else:  # nothing hides the first gather and the last reduction
            wait = gather + self._reduce.time(self._nodes[j]["grad_per_module"])
        return program.add_variable(cost=wait, upper=1, integer=True)

    def _add_backward_wait(
        self, program: LinearProgram, i: int, steps: Mapping[tuple[int, int], int], chosen: int
    ) -> None:
        """In backward unit i gathers the one before it and reduces the one after it."""
        wait = program.add_variable(cost=1)
        times = [(wait, 1.0), (chosen, self._nodes[i]["bw_runtime_per_module"])]
        for (h, j), variable in steps.items():
            if j == i:
                times.append((variable, -self._gather.time(self._nodes[h]["param_per_module"])))
            if h == i:
                times.append((variable, -self._reduce.time(self._nodes[j]["grad_per_module"])))
        program.constrain(times, at_least=0)

    def _limit_memory(self, program: LinearProgram, chosen: Mapping[int, int]) -> None:
        """Also adds the times of the root, which gathers and reduces what no other unit has."""
        fields = ("param_per_module", "grad_per_module")
        own = []
        for field, speed in zip(fields, (self._gather, self._reduce), strict=True):
            variable = program.add_variable(cost=_GIB / speed.bandwidth)
            sizes = [(var, self._nodes[i][field] / _GIB) for i, var in chosen.items()]  # type: ignore[literal-required]
            whole = self._nodes[0][field] / _GIB  # type: ignore[literal-required]
            program.constrain([(variable, 1.0), *sizes], at_least=whole, at_most=whole)
            own.append(variable)
        largest = program.add_variable()
        program.constrain({largest: 1, own[0]: -1}, at_least=0)
        for i, variable in chosen.items():
            size = self._nodes[i]["param_per_module"] / _GIB
            program.constrain({largest: 1, variable: -size}, at_least=0)
        for k in range(len(self._nodes)):
            around = [
                (var, self._whole(i) / _GIB) for i, var in chosen.items() if self._below[i][k]
            ]
            rest = memory_without_plan(self._graph, k, self._world_size)
            program.constrain(
                [(own[0], 1.0), (own[1], 1.0), (largest, 2.0), *around],
                at_most=(self._budget - rest) / _GIB,
            )

    def _whole(self, i: int) -> int:
        return self._nodes[i]["param_per_module"] + self._nodes[i]["grad_per_module"]

    def _find_peak(self, units: list[int]) -> float:
        """Shards, what a module and its units hold, and room for two units that are gathered."""
        sizes = [self._nodes[i]["param_per_module"] for i in units]
        root = self._nodes[0]["param_per_module"] - sum(sizes)
        whole = self._whole(0) - sum(map(self._whole, units))
        return 2 * max([root, *sizes]) + max(
            memory_without_plan(self._graph, k, self._world_size)
            + whole
            + sum(self._whole(i) for i in units if self._below[i][k])
            for k in range(len(self._nodes))
        )

    def _find_wait(self, units: list[int]) -> float:
        gather = {i: self._gather.time(self._nodes[i]["param_per_module"]) for i in units}
        reduce = {i: self._reduce.time(self._nodes[i]["grad_per_module"]) for i in units}
        parameters = sum(self._nodes[i]["param_per_module"] for i in units)
        gradients = sum(self._nodes[i]["grad_per_module"] for i in units)
        wait = self._gather.time(self._nodes[0]["param_per_module"] - parameters)
        wait += self._reduce.time(self._nodes[0]["grad_per_module"] - gradients)
        wait += gather[units[0]] + reduce[units[0]] if units else 0.0
        for before, i, after in zip([None, *units], units, [*units[1:], None], strict=False):
            forward = gather[after] if after is not None else 0.0
            wait += max(0.0, forward - self._nodes[i]["fw_runtime_per_module"])
            backward = gather[before] if before is not None else 0.0
            backward += reduce[after] if after is not None else 0.0
            wait += max(0.0, backward - self._nodes[i]["bw_runtime_per_module"])
        return wait
