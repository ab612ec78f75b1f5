# SPDX-License-Identifier: BSD-3-Clause
"""The search over blocks against the solver HiGHS; tests/plan compares it with brute force."""

from __future__ import annotations

import random

import pytest
from tidegauge import _core
from tidegauge.planning.linear_program import LinearProgram

pytest.importorskip("highspy")
Rows = list[list[tuple[int, int, int]]]  # for each block and choice: kept, working, time


def draw(seed: int) -> tuple[Rows, int, int]:
    choose = random.Random(seed)
    blocks = [
        [
            (choose.randrange(400), choose.randrange(1500), choose.randrange(200))
            for _ in range(choose.randint(1, 4))
        ]
        for _ in range(choose.randint(1, 24))
    ]
    return blocks, choose.randrange(1000), choose.randrange(2000)


def solve(blocks: Rows, tail: int, budget: int) -> float | None:
    """The least time: one variable for each choice, one constraint for each moment."""
    program = LinearProgram()
    variables = [[program.add_variable(cost=row[2], upper=1, integer=True) for row in rows]
                 for rows in blocks]  # fmt: skip
    kept: list[tuple[int, float]] = []
    for rows, chosen in zip(blocks, variables, strict=True):
        program.constrain([(each, 1.0) for each in chosen], at_least=1, at_most=1)
        working = [(each, float(row[1])) for each, row in zip(chosen, rows, strict=True)]
        program.constrain([*kept, *working], at_most=budget)
        kept += [(each, float(row[0])) for each, row in zip(chosen, rows, strict=True)]
    program.constrain(kept, at_most=budget - tail)
    solution = program.solve(seconds=60)
    if solution is None:
        return None
    assert solution.gap < 1e-6
    return sum(
        row[2] * round(solution.values[each])
        for rows, chosen in zip(blocks, variables, strict=True)
        for each, row in zip(chosen, rows, strict=True)
    )


@pytest.mark.parametrize("seed", range(60))
def test_search_finds_the_optimum_of_the_solver(seed: int) -> None:
    blocks, tail, floor = draw(seed)
    problem = _core.PlanProblem(blocks, tail, floor, [])
    plans, gap_ns = problem.find_plans()
    assert gap_ns == 0
    peaks = sorted(peak for _, peak, _ in plans)
    for budget in {peaks[0] - 1, peaks[0], peaks[len(peaks) // 2], peaks[-1]}:
        times = [time for _, peak, time in plans if peak <= budget]
        found = solve(blocks, tail, budget) if floor <= budget else None
        assert (min(times) if times else None) == found
