# SPDX-License-Identifier: BSD-3-Clause
"""What each block keeps, needs and recomputes under each kind of checkpointing, and the search over
all combinations (include/tidegauge/plan.h)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidegauge import _core
from tidegauge.estimation.estimator import Estimate
from tidegauge.estimation.step_record import BlockRecord, StepRecord
from tidegauge.planning.speed import Speed


@dataclass(frozen=True)
class Candidate:
    """A plan and its figures in the search, which counts tensors only."""

    kinds: tuple[str, ...]
    peak_bytes: int
    time_ns: int


@dataclass(frozen=True)
class BlockEffect:
    """What a kind of checkpointing does in one block: it keeps `saved_bytes` less between forward
    and backward than without checkpointing, and recomputes for `recompute_ns`.
    """

    saved_bytes: int
    recompute_ns: int


class BlockModel:
    """What each block needs under each kind of checkpointing, from simulated runs with one kind for
    all blocks. `uniform`: by kind; "none" is one of them.
    """

    def __init__(self, uniform: Mapping[str, tuple[Estimate, StepRecord]], speed: Speed) -> None:
        self._kinds = tuple(uniform)
        first = uniform["none"][1].blocks
        numbers: dict[str, int] = {}
        classes = [numbers.setdefault(block.kind, len(numbers)) for block in first]
        self._blocks: list[list[tuple[int, int, int]]] = [[] for _ in first]
        tails = []
        for estimate, step in uniform.values():
            kept = _kept_bytes(step.blocks)
            before = 0
            for position, block in enumerate(step.blocks):
                working = max(0, block.peak_bytes - before)
                time_ns = step.recompute_ns(block, speed)
                self._blocks[position].append((kept[position], working, time_ns))
                before += kept[position]
            tails.append(estimate.peak.total_bytes - before)
        least = min(estimate.peak.total_bytes for estimate, _ in uniform.values())
        self._problem = _core.PlanProblem(self._blocks, max(0, min(tails)), least, classes)

    def describe_effects(self, kinds: Sequence[str]) -> tuple[BlockEffect, ...]:
        """Of each block under its kind."""
        none = self._kinds.index("none")
        effects = []
        for rows, kind in zip(self._blocks, kinds, strict=True):
            kept, _, recompute_ns = rows[self._kinds.index(kind)]
            effects.append(BlockEffect(rows[none][0] - kept, recompute_ns))
        return tuple(effects)

    def list_faster(self, kinds: Sequence[str]) -> list[tuple[str, ...]]:
        """These kinds with less recompute in one block, the lowest peak first."""
        choices = [self._kinds.index(kind) for kind in kinds]
        _, _, time_ns = self._problem.evaluate(choices)
        found = set()
        for position in range(len(choices)):
            for choice in range(len(self._kinds)):
                changed = [*choices[:position], choice, *choices[position + 1 :]]
                made, peak_bytes, faster_ns = self._problem.evaluate(changed)
                if faster_ns < time_ns:
                    regular, peak_bytes, _ = self._problem.make_regular(made, peak_bytes)
                    found.add((peak_bytes, tuple(self._kinds[each] for each in regular)))
        return [kinds for _, kinds in sorted(found)]

    def find_front(self, budget: int) -> tuple[list[Candidate], int]:
        """Fastest first, each one regular; and by how much a plan could be faster than these at the
        same peak (0: by nothing)."""
        plans, gap_ns = self._problem.find_plans()
        front = []
        for choices, peak_bytes, _ in plans:
            regular = self._problem.make_regular(choices, max(budget, peak_bytes))
            kinds = tuple(self._kinds[choice] for choice in regular[0])
            front.append(Candidate(kinds, regular[1], regular[2]))
        return front, gap_ns


def _kept_bytes(blocks: Sequence[BlockRecord]) -> list[int]:
    """What each block adds to the bytes that the next one finds."""
    ends = [*(block.before_bytes for block in blocks[1:]), blocks[-1].after_bytes]
    return [max(0, end - block.before_bytes) for end, block in zip(ends, blocks, strict=True)]
