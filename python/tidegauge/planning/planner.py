# SPDX-License-Identifier: BSD-3-Clause
"""Chooses the checkpointing of each block, so that a run fits a budget and a step is fastest.

1. Simulates the run with each kind of checkpointing for all blocks. This measures what each block
   keeps, needs while it works, and recomputes.
2. Searches all combinations (include/tidegauge/plan.h).
3. Simulates the fastest combinations that fit, until one does and the next faster one does not.

A plan is judged by its own simulation, never by the search.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidegauge import _core
from tidegauge.allocator import DeviceModel
from tidegauge.estimation.estimator import Estimate, Estimator
from tidegauge.estimation.plan import CHECKPOINTING, Plan, render_ac
from tidegauge.estimation.step_record import BlockRecord, StepRecord
from tidegauge.planning.speed import Speed, find_speed

_FEW = 16  # plans, which are all simulated
_MOST_SIMULATIONS = 12
_MOST_IMPROVEMENTS = 6
# Faster plans that differ by less are not worth another simulation.
_LEAST_GAIN = 0.001


class BudgetError(ValueError):
    """No choice of checkpointing fits the budget. `least_bytes`: what the run needs at least."""

    def __init__(self, message: str, least_bytes: int) -> None:
        super().__init__(message)
        self.least_bytes = least_bytes


@dataclass(frozen=True)
class Row:
    """A simulated plan. `time`: members of StepTime, in nanoseconds (src/plan/step_time.h)."""

    name: str
    estimate: Estimate
    kinds: tuple[str, ...]
    time: dict[str, float]
    fits: bool

    @property
    def step_ns(self) -> float:
        return self.time["total_ns"]


@dataclass(frozen=True)
class PlanResult:
    """The fastest plan that fits, and what it was compared with.

    `blocks`: the names of the blocks, in the order of `chosen.kinds`. `rows`: none, every second
    block, attention, selective and full. `gain_ns`: how much faster a plan could be that was not
    simulated, by the times of the search.
    """

    budget_bytes: int
    device: DeviceModel
    blocks: tuple[str, ...]
    chosen: Row
    rows: tuple[Row, ...]
    simulated: int
    gain_ns: float
    speed: Speed

    @property
    def slowdown(self) -> float:
        """How much slower than without checkpointing, as a fraction."""
        return self.chosen.step_ns / self.rows[0].step_ns - 1


def find_plan(
    estimator: Estimator,
    plan: Plan,
    device: DeviceModel,
    *,
    budget_bytes: int | None = None,
    alloc_conf: str | None = None,
    speed: str = "",
) -> PlanResult:
    """`budget_bytes`: all of the device by default. `speed`: the device whose time is estimated, if
    it is not `device`.

    Raises BudgetError if no plan fits, ValueError if the model has no blocks or if the peaks of
    the device are not known.
    """
    if plan.pp > 1:
        raise ValueError(f"pp={plan.pp} cannot be planned: its ranks have different blocks")
    budget = device.memory_bytes if budget_bytes is None else budget_bytes
    search = _Search(estimator, plan, device, budget, alloc_conf, speed_of(device, speed))
    return search.run()


def speed_of(device: DeviceModel, name: str) -> Speed:
    """`name`: of another device. Raises ValueError if the peaks are not known."""
    speed = find_speed(name or device.key)
    if speed is None:
        raise ValueError(
            f"the peaks of {name or device.name or 'this device'} are not known, so plans cannot "
            "be compared by time; name another device with --speed"
        )
    return speed


def simulate(
    estimator: Estimator,
    plan: Plan,
    device: DeviceModel,
    budget_bytes: int,
    alloc_conf: str | None,
    speed: Speed,
    name: str = "",
) -> Row:
    """One plan as it is."""
    found = estimator.estimate(plan, device, alloc_conf)
    step = estimator.step_of(found)
    return Row(
        name=name,
        estimate=found,
        kinds=found.plan.checkpointing_of(len(step.blocks)),
        time=step.time(speed),
        fits=found.high_bytes <= budget_bytes and not found.failed_requests,
    )


@dataclass
class _Search:
    estimator: Estimator
    plan: Plan
    device: DeviceModel
    budget: int
    alloc_conf: str | None
    speed: Speed

    def __post_init__(self) -> None:
        self._done: dict[str, Row] = {}

    def run(self) -> PlanResult:
        uniform = {kind: self._simulate(kind, kind) for kind in CHECKPOINTING}
        names = tuple(each.name for each in self._step(uniform["none"]).blocks)
        if not names:
            raise ValueError(
                f"{self.estimator.contract.name} has no list of blocks to checkpoint; define "
                "blocks(model)"
            )
        rows = [uniform["none"], *self._try_every_second(), *[*uniform.values()][1:]]
        chosen, gain_ns = self._choose(rows, _Model(uniform, self._step, self.speed))
        return PlanResult(
            budget_bytes=self.budget,
            device=self.device,
            blocks=names,
            chosen=chosen,
            rows=tuple(rows),
            simulated=len(self._done),
            gain_ns=gain_ns,
            speed=self.speed,
        )

    def _try_every_second(self) -> list[Row]:
        try:
            return [self._simulate("every 2nd full", "every:2")]
        except ValueError:
            return []

    def _simulate(self, name: str, ac: str) -> Row:
        if ac in self._done:
            return self._done[ac]
        self._done[ac] = simulate(
            self.estimator,
            self.plan.change(ac=ac),
            self.device,
            self.budget,
            self.alloc_conf,
            self.speed,
            name,
        )
        return self._done[ac]

    def _step(self, row: Row) -> StepRecord:
        return self.estimator.step_of(row.estimate)

    def _choose(self, rows: Sequence[Row], model: _Model) -> tuple[Row, float]:
        """The fastest simulated plan that fits, and how much faster another could be."""
        fitting = [row for row in rows if row.fits]
        if rows[0].fits:  # nothing is faster than no recompute
            return min(fitting, key=lambda row: row.step_ns), 0.0
        if len(CHECKPOINTING) ** len(rows[0].kinds) <= _FEW:
            every = itertools.product(CHECKPOINTING, repeat=len(rows[0].kinds))
            done = [self._simulate("plan", render_ac(kinds)) for kinds in every]
            fitting += [row for row in done if row.fits]
            if fitting:
                return min(fitting, key=lambda row: (row.step_ns, _need(row))), 0.0
        front = model.find_front(self.budget)
        # Plans before `failing` are faster and known not to fit; those from `fitting_at` on do.
        failing, fitting_at = 0, len(front)
        offset = max(row.estimate.high_bytes - row.estimate.peak.total_bytes for row in rows)
        tried = 0
        while fitting_at - failing > 0 and tried < _MOST_SIMULATIONS:
            if fitting_at < len(front):
                gain = front[fitting_at].time_ns - front[failing].time_ns
                if gain < _LEAST_GAIN * rows[0].step_ns:
                    break
            at = _first_below(front, failing, fitting_at, self.budget - offset)
            if tried > 2:  # the model is off: halve what is left
                at = (failing + fitting_at) // 2
            row = self._simulate("plan", render_ac(front[at].kinds))
            tried += 1
            if row.fits:
                fitting.append(row)
                fitting_at = at
                offset = row.estimate.high_bytes - front[at].peak_bytes
            else:
                failing = at + 1
                offset = max(offset, row.estimate.high_bytes - front[at].peak_bytes)
        if not fitting:
            least = min(self._done.values(), key=_need)
            raise BudgetError(self._explain(least), _need(least))
        gain_ns = 0.0
        if failing < fitting_at < len(front):
            gain_ns = front[fitting_at].time_ns - front[failing].time_ns
        best = min(fitting, key=lambda row: (row.step_ns, _need(row)))
        return self._improve(best, model), float(gain_ns)

    def _improve(self, best: Row, model: _Model) -> Row:
        """Tries plans that recompute less in one block. The search may think that none fits."""
        tried = 0
        while True:
            for kinds in model.list_faster(best.kinds):
                tried += 1
                if tried > _MOST_IMPROVEMENTS:
                    return best
                row = self._simulate("plan", render_ac(kinds))
                if row.fits and row.step_ns < best.step_ns:
                    best = row
                    break
            else:
                return best

    def _explain(self, least: Row) -> str:
        """What the least memory is, and what sets it."""
        found = least.estimate
        layer = max(found.peak.categories.items(), key=lambda item: item[1])
        render = _core.render_bytes
        return (
            f"no checkpointing fits {render(self.budget)}: the least is "
            f"{render(found.high_bytes)}, with {found.plan.describe()}; the largest part at its "
            f"peak is {layer[0]} with {render(layer[1])}. Use more devices, a smaller batch or a "
            "smaller model (tidegauge estimate suggests changes)"
        )


def _need(row: Row) -> int:
    return row.estimate.high_bytes


@dataclass(frozen=True)
class _Candidate:
    kinds: tuple[str, ...]
    peak_bytes: int
    time_ns: int


def _first_below(front: Sequence[_Candidate], begin: int, end: int, limit: int) -> int:
    """The first candidate with a lower peak than the limit; the last one if there is none."""
    found = (at for at in range(begin, end) if front[at].peak_bytes <= limit)
    return next(found, end - 1)


class _Model:
    """What each block needs under each kind of checkpointing, from runs with one kind for all."""

    def __init__(
        self,
        uniform: dict[str, Row],
        step_of: Callable[[Row], StepRecord],
        speed: Speed,
    ) -> None:
        self._kinds = tuple(uniform)
        steps = {kind: step_of(row) for kind, row in uniform.items()}
        first = steps["none"].blocks
        numbers: dict[str, int] = {}
        classes = [numbers.setdefault(block.kind, len(numbers)) for block in first]
        blocks: list[list[tuple[int, int, int]]] = [[] for _ in first]
        tails = []
        for kind, step in steps.items():
            kept = _kept_bytes(step.blocks)
            before = 0
            for position, block in enumerate(step.blocks):
                working = max(0, block.peak_bytes - before)
                time_ns = step.recompute_ns(block, speed)
                blocks[position].append((kept[position], working, time_ns))
                before += kept[position]
            tails.append(uniform[kind].estimate.peak.total_bytes - before)
        least = min(row.estimate.peak.total_bytes for row in uniform.values())
        self._problem = _core.PlanProblem(blocks, max(0, min(tails)), least, classes)

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

    def find_front(self, budget: int) -> list[_Candidate]:
        """Fastest first, each one regular."""
        plans, _ = self._problem.find_plans()
        front = []
        for choices, peak_bytes, _ in plans:
            regular = self._problem.make_regular(choices, max(budget, peak_bytes))
            kinds = tuple(self._kinds[choice] for choice in regular[0])
            front.append(_Candidate(kinds, regular[1], regular[2]))
        return front


def _kept_bytes(blocks: Sequence[BlockRecord]) -> list[int]:
    """What each block adds to the bytes that the next one finds."""
    ends = [*(block.before_bytes for block in blocks[1:]), blocks[-1].after_bytes]
    return [max(0, end - block.before_bytes) for end, block in zip(ends, blocks, strict=True)]
