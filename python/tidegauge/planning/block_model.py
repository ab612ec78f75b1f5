# SPDX-License-Identifier: BSD-3-Clause
"""What each block keeps, needs and recomputes under each kind of checkpointing, and the search over
all combinations (include/tidegauge/plan.h)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from tidegauge import _core
from tidegauge.estimation.estimator import Estimate
from tidegauge.estimation.step_record import BlockRecord, StepRecord
from tidegauge.planning.speed import Speed


@dataclass(frozen=True)
class Candidate:
    """A plan and its figures in the search, which counts tensors only. `is_regular`: blocks of one
    class with equal choices stand side by side."""

    kinds: tuple[str, ...]
    peak_bytes: int
    time_ns: int
    is_regular: bool


@dataclass(frozen=True)
class BlockEffect:
    """What a kind of checkpointing does in one block: it keeps `saved_bytes` less between forward
    and backward than without checkpointing, and recomputes for `recompute_ns`.
    """

    saved_bytes: int
    recompute_ns: int


class BlockModel:
    """What each block needs under each choice, from simulated runs with one choice for all blocks.

    `runs`: the kind of checkpointing of each block, and the run; the first one is without
    checkpointing.
    """

    def __init__(
        self, runs: Sequence[tuple[tuple[str, ...], Estimate, StepRecord]], speed: Speed
    ) -> None:
        first = runs[0][2].blocks
        self._kinds = [*zip(*(kinds for kinds, _, _ in runs), strict=True)]  # by block
        numbers: dict[str, int] = {}
        self._classes = [numbers.setdefault(block.kind, len(numbers)) for block in first]
        self._blocks: list[list[tuple[int, int, int]]] = [[] for _ in first]
        tails = []
        for _, estimate, step in runs:
            kept = _kept_bytes(step.blocks)
            before = 0
            for position, block in enumerate(step.blocks):
                working = max(0, block.peak_bytes - before)
                time_ns = step.recompute_ns(block, speed)
                self._blocks[position].append((kept[position], working, time_ns))
                before += kept[position]
            tails.append(estimate.peak.total_bytes - before)
        least = min(estimate.peak.total_bytes for _, estimate, _ in runs)
        self._problem = _core.PlanProblem(self._blocks, max(0, min(tails)), least, self._classes)

    def describe_effects(self, kinds: Sequence[str]) -> tuple[BlockEffect, ...]:
        """Of each block under its kind."""
        effects = []
        for rows, choice in zip(self._blocks, self._to_choices(kinds), strict=True):
            kept, _, recompute_ns = rows[choice]
            effects.append(BlockEffect(rows[0][0] - kept, recompute_ns))
        return tuple(effects)

    def list_faster(self, kinds: Sequence[str], has_irregular: bool) -> list[tuple[str, ...]]:
        """These kinds with less recompute in one block, the lowest peak first."""
        choices = self._to_choices(kinds)
        _, _, time_ns = self._problem.evaluate(choices)
        found = set()
        for position in range(len(choices)):
            for choice in range(len(self._kinds[position])):
                changed = [*choices[:position], choice, *choices[position + 1 :]]
                made, peak_bytes, faster_ns = self._problem.evaluate(changed)
                if faster_ns < time_ns:
                    regular, peak_bytes, _ = self._problem.make_regular(made, peak_bytes)
                    if has_irregular or self._is_regular(regular):
                        found.add((peak_bytes, self._to_kinds(regular)))
        return [kinds for _, kinds in sorted(found)]

    def find_front(self, budget: int) -> tuple[list[Candidate], list[Candidate], int]:
        """Fastest first: the regular plans, all plans, and by how much a plan could be faster than
        the latter at the same peak (0: by nothing).
        """
        plans, gap_ns = self._problem.find_plans()
        every, regular = [], []
        for choices, peak_bytes, time_ns in plans:
            is_regular = self._is_regular(choices)
            every.append(Candidate(self._to_kinds(choices), peak_bytes, time_ns, is_regular))
            made = self._problem.make_regular(choices, max(budget, peak_bytes))
            if self._is_regular(made[0]):
                regular.append(Candidate(self._to_kinds(made[0]), made[1], made[2], True))
        for choice in range(len(self._kinds[0])):
            made = self._problem.evaluate([choice] * len(self._blocks))
            regular.append(Candidate(self._to_kinds(made[0]), made[1], made[2], True))
        return _keep_best(regular), every, gap_ns

    def _is_regular(self, choices: Sequence[int]) -> bool:
        kinds_of: dict[int, list[int]] = {}
        for number, choice in zip(self._classes, choices, strict=True):
            kinds_of.setdefault(number, []).append(choice)
        return all(len([*itertools.groupby(each)]) == len(set(each)) for each in kinds_of.values())

    def _to_kinds(self, choices: Sequence[int]) -> tuple[str, ...]:
        return tuple(kinds[each] for kinds, each in zip(self._kinds, choices, strict=True))

    def _to_choices(self, kinds: Sequence[str]) -> list[int]:
        return [known.index(kind) for known, kind in zip(self._kinds, kinds, strict=True)]


def _keep_best(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Those that no other one beats, the fastest first."""
    found: list[Candidate] = []
    for each in sorted(candidates, key=lambda each: (each.time_ns, each.peak_bytes, each.kinds)):
        if not found or each.peak_bytes < found[-1].peak_bytes:
            found.append(each)
    return found


def _kept_bytes(blocks: Sequence[BlockRecord]) -> list[int]:
    """What each block adds to the bytes that the next one finds."""
    ends = [*(block.before_bytes for block in blocks[1:]), blocks[-1].after_bytes]
    return [max(0, end - block.before_bytes) for end, block in zip(ends, blocks, strict=True)]
