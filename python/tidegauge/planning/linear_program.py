# SPDX-License-Identifier: BSD-3-Clause
"""Mixed-integer linear programs, solved by HiGHS if its package is installed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

_INSTALL = "choosing what to recompute or shard needs the solver HiGHS: run `pip install highspy`"


@dataclass(frozen=True)
class Solution:
    """The best values found. `gap` bounds their distance from the optimum, as a share of it."""

    values: list[float]
    gap: float


class LinearProgram:
    """Minimises the sum of cost times variable under linear constraints.

    Variables are numbers, counted from 0. Raises ImportError without HiGHS.
    """

    def __init__(self) -> None:
        try:
            self._highspy: Any = import_module("highspy")
        except ImportError as error:
            raise ImportError(_INSTALL) from error
        self._solver = self._highspy.Highs()
        self._solver.setOptionValue("output_flag", False)
        self._count = 0

    def add_variable(
        self,
        *,
        cost: float = 0.0,
        upper: float = math.inf,
        lower: float = 0.0,
        integer: bool = False,
    ) -> int:
        self._solver.addVar(lower, upper)
        if cost:
            self._solver.changeColCost(self._count, cost)
        if integer:
            self._solver.changeColIntegrality(self._count, self._highspy.HighsVarType.kInteger)
        self._count += 1
        return self._count - 1

    def constrain(
        self,
        terms: Mapping[int, float] | Iterable[tuple[int, float]],
        *,
        at_least: float = -math.inf,
        at_most: float = math.inf,
    ) -> None:
        """Bounds the sum of coefficient times variable; a variable may occur several times."""
        sums: dict[int, float] = {}
        for variable, factor in terms.items() if isinstance(terms, Mapping) else terms:
            sums[variable] = sums.get(variable, 0.0) + factor
        self._solver.addRow(at_least, at_most, len(sums), list(sums), list(sums.values()))

    def solve(self, *, gap: float = 0.0, seconds: float = 60.0) -> Solution | None:
        """None if no values fulfil the constraints, or none were found in time."""
        for name, value in (("mip_rel_gap", gap), ("time_limit", seconds), ("threads", 1)):
            self._solver.setOptionValue(name, value)
        self._solver.run()
        info = self._solver.getInfo()
        if info.primal_solution_status != 2:  # feasible
            return None
        found = info.mip_gap if math.isfinite(info.mip_gap) else 0.0
        return Solution(list(self._solver.getSolution().col_value), max(0.0, found))
