# SPDX-License-Identifier: BSD-3-Clause
"""Measures ratios of time on a noisy machine.

All variants of a case take turns within each round, so that a slow moment affects all of them. Each
is compared with the plain run of its own round. A second plain run in each round shows by how much
two equal runs differ: the spread.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass

ROUNDS = 21
PLAIN = "plain"

Step = Callable[[], object]
Enter = Callable[[], AbstractContextManager[object]]


@dataclass
class Ratio:
    """A variant's time divided by that of the plain run, and its bar."""

    case: str
    variant: str
    ratio: float
    spread: float
    plain_us: float
    bar: float | None = None

    @property
    def is_met(self) -> bool | None:
        """A bar missed by less than the spread counts as met. None: there is no bar."""
        return None if self.bar is None else self.ratio <= self.bar + self.spread

    def to_json(self) -> dict[str, object]:
        return {**asdict(self), "is_met": self.is_met}


def measure(
    case: str,
    step: Step,
    variants: dict[str, tuple[Enter, float | None]],
    *,
    plain: Enter,
    steps: int,
    warm_up: int = 5,
    rounds_of: dict[str, int] | None = None,
    clock: Callable[[], float] = time.thread_time,
) -> list[Ratio]:
    """Times `steps` calls of `step` inside each variant's context, in thread CPU time by default.

    `rounds_of`: the number of rounds for variants that are too slow for all rounds.
    """

    def seconds(enter: Enter) -> float:
        with enter():
            for _ in range(warm_up):
                step()
            start = clock()
            for _ in range(steps):
                step()
            return clock() - start

    plains: list[float] = []
    spreads: list[float] = []
    ratios: dict[str, list[float]] = {name: [] for name in variants}
    seconds(plain)
    for round_ in range(ROUNDS):
        plains.append(seconds(plain))
        for name, (enter, _bar) in variants.items():
            if round_ < (rounds_of or {}).get(name, ROUNDS):
                ratios[name].append(seconds(enter) / plains[-1])
        spreads.append(abs(seconds(plain) / plains[-1] - 1))
    plain_us = statistics.median(plains) / steps * 1e6
    spread = statistics.median(spreads)
    return [
        Ratio(case, name, statistics.median(ratios[name]), spread, plain_us, bar)
        for name, (_enter, bar) in variants.items()
    ]
