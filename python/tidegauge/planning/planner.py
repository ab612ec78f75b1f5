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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tidegauge import _core
from tidegauge._util.notebook import render_rows
from tidegauge.allocator import DeviceModel
from tidegauge.estimation.block_kinds import CHECKPOINTING, render_ac
from tidegauge.estimation.estimator import Estimate, Estimator
from tidegauge.estimation.plan import Plan
from tidegauge.estimation.step_record import StepRecord
from tidegauge.planning.block_model import BlockEffect, BlockModel, Candidate
from tidegauge.planning.kept_sets import list_kept_sets
from tidegauge.planning.plan_file import AppliedPlan, make_applied
from tidegauge.planning.speed import Speed, find_speed

_FEW = 16  # plans, which are all simulated
_MOST_SIMULATIONS = 12
_MOST_IMPROVEMENTS = 6
_FRONT_FILLS = 3
# Faster plans that differ by less are not worth another simulation.
_LEAST_GAIN = 0.001
_KEPT_SETS = 4
# Irregular plans are harder to read, and gain less than the times are wrong.
_LEAST_IRREGULAR_GAIN = 0.01


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

    `blocks`: the names of the blocks, in the order of `chosen.kinds`; `effects`: what these kinds
    do in each. `rows`: none, every second block, attention, selective and full. `front`: the
    simulated plans that no other one beats in both memory and time, the fastest first. `gain_ns`:
    how much faster a plan could be that was not simulated, by the times of the search; `gap_ns` of
    it because the search was not exact. `irregular_ns`: the same for plans whose equal blocks have
    unequal choices side by side.
    """

    budget_bytes: int
    device: DeviceModel
    blocks: tuple[str, ...]
    effects: tuple[BlockEffect, ...]
    chosen: Row
    rows: tuple[Row, ...]
    front: tuple[Row, ...]
    simulated: int
    gain_ns: float
    gap_ns: float
    irregular_ns: float
    speed: Speed

    def __str__(self) -> str:
        """`FSDP2 over 8 ranks, ... checkpointing full:0-11: fits 79.1 GiB with 1.20 GiB to spare,
        about 3.1% slower than without checkpointing`"""
        spare = self.budget_bytes - self.chosen.estimate.high_bytes
        render = _core.render_bytes
        fits = f"fits {render(self.budget_bytes)} with {render(spare)} to spare"
        slower = "without checkpointing"
        if set(self.chosen.kinds) != {"none"}:
            slower = f"about {max(self.slowdown, 0):.1%} slower than {slower}"
        return f"{self.chosen.estimate.plan.describe()}: {fits}, {slower}"

    def _repr_html_(self) -> str:
        """For notebooks: the plan and what it was compared with."""
        rows = [
            (
                row.name or "plan",
                row.estimate.plan.ac,
                _core.render_bytes(row.estimate.high_bytes),
                f"{row.step_ns / 1e6:,.1f} ms",
                f"{row.time['recompute_ns'] / 1e6:,.1f} ms",
                "fits" if row.fits else "does not fit",
            )
            for row in (self.chosen, *self.rows)
        ]
        heads = ("", "checkpointing", "peak", "step", "recompute", "verdict")
        return render_rows(str(self), heads, rows)

    @property
    def slowdown(self) -> float:
        """How much slower than without checkpointing, as a fraction."""
        return self.chosen.step_ns / self.rows[0].step_ns - 1

    @property
    def facts(self) -> dict[str, Any]:
        """What the plan was made for, and what it needs."""
        chosen = self.chosen.estimate
        return {
            "target": chosen.target,
            "settings": chosen.settings,
            "plan": chosen.plan.describe(),
            "device": self.device.key or self.device.name,
            "budget_bytes": self.budget_bytes,
            "needed_bytes": chosen.needed_bytes,
            "high_bytes": chosen.high_bytes,
        }

    @property
    def applied(self) -> AppliedPlan:
        """The chosen checkpointing, to apply to a model, to write, or to print as code."""
        return make_applied(self.blocks, self.chosen.kinds, self.facts)


def find_plan(
    estimator: Estimator,
    plan: Plan,
    device: DeviceModel,
    *,
    budget_bytes: int | None = None,
    alloc_conf: str | None = None,
    speed: str = "",
    irregular: bool = False,
) -> PlanResult:
    """`budget_bytes`: all of the device by default. `speed`: the device whose time is estimated, if
    it is not `device`. `irregular`: also plans whose equal blocks with equal choices do not stand
    side by side, if they are more than 1 % faster.

    Raises BudgetError if no plan fits, ValueError if the model has no blocks or if the peaks of
    the device are not known.
    """
    if plan.pp > 1:
        raise ValueError(f"pp={plan.pp} cannot be planned: its ranks have different blocks")
    budget = device.memory_bytes if budget_bytes is None else budget_bytes
    timed = speed_of(device, speed)
    search = _Search(estimator, plan, device, budget, alloc_conf, timed, irregular)
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
    irregular: bool

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
        sets = list_kept_sets(self._step(uniform["full"]), self.speed, _KEPT_SETS)
        kept = [self._simulate("kept ops", render_ac(kinds)) for kinds in sets]
        model = BlockModel(
            [(row.kinds, row.estimate, self._step(row)) for row in (*uniform.values(), *kept)],
            self.speed,
        )
        regular, every, gap_ns = model.find_front(self.budget)
        chosen, gain_ns = self._choose(rows, model, regular)
        self._fill_front(regular)
        irregular_ns = 0.0
        if gain_ns is not None:
            irregular_ns = self._find_irregular_gain(chosen, regular, every)
            if self.irregular and irregular_ns > _LEAST_IRREGULAR_GAIN * chosen.step_ns:
                other, other_gain = self._choose(rows, model, every, has_irregular=True)
                if other.step_ns < (1 - _LEAST_IRREGULAR_GAIN) * chosen.step_ns:
                    chosen, gain_ns, irregular_ns = other, other_gain, 0.0
        return PlanResult(
            budget_bytes=self.budget,
            device=self.device,
            blocks=names,
            effects=model.describe_effects(chosen.kinds),
            chosen=chosen,
            rows=tuple(rows),
            front=_find_front(self._done.values()),
            simulated=len(self._done),
            gain_ns=gain_ns + gap_ns if gain_ns is not None else 0.0,
            gap_ns=gap_ns if gain_ns is not None else 0.0,
            irregular_ns=irregular_ns,
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

    def _fill_front(self, candidates: Sequence[Candidate]) -> None:
        """Simulates plans where the front has its widest gaps in memory."""
        for _ in range(_FRONT_FILLS):
            needs = sorted(_need(row) for row in _find_front(self._done.values()))
            if len(needs) < 2:
                return
            width, low = max((after - low, low) for low, after in itertools.pairwise(needs))
            offset = _need(self._done["none"]) - self._done["none"].estimate.peak.total_bytes
            middle = low + width // 2 - offset
            nearest = min(candidates, key=lambda each: abs(each.peak_bytes - middle))
            ac = render_ac(nearest.kinds)
            if ac in self._done:
                return
            self._simulate("front", ac)

    def _choose(
        self,
        rows: Sequence[Row],
        model: BlockModel,
        front: Sequence[Candidate],
        has_irregular: bool = False,
    ) -> tuple[Row, float | None]:
        """The fastest simulated plan that fits, and how much faster another could be; None if the
        simulations alone prove that none is.
        """
        fitting = [row for row in self._done.values() if row.fits]
        if rows[0].fits:  # nothing is faster than no recompute
            return min(fitting, key=lambda row: row.step_ns), None
        if len(CHECKPOINTING) ** len(rows[0].kinds) <= _FEW:
            every = itertools.product(CHECKPOINTING, repeat=len(rows[0].kinds))
            done = [self._simulate("plan", render_ac(kinds)) for kinds in every]
            fitting += [row for row in done if row.fits]
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
        return self._improve(best, model, has_irregular), float(gain_ns)

    def _find_irregular_gain(
        self, chosen: Row, regular: Sequence[Candidate], every: Sequence[Candidate]
    ) -> float:
        """By the times of the search, at the peak that the chosen plan has there."""
        known = [each for each in regular if each.kinds == chosen.kinds]
        if not known:
            return 0.0
        spare = max(0, self.budget - _need(chosen))
        limit = known[0].peak_bytes + spare
        best = min((each.time_ns for each in every if each.peak_bytes <= limit), default=0)
        fastest = min(each.time_ns for each in regular if each.peak_bytes <= limit)
        return float(max(0, fastest - best))

    def _improve(self, best: Row, model: BlockModel, has_irregular: bool) -> Row:
        """Tries plans that recompute less in one block. The search may think that none fits."""
        tried = 0
        while True:
            for kinds in model.list_faster(best.kinds, has_irregular):
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


def _find_front(rows: Iterable[Row]) -> tuple[Row, ...]:
    """The rows that no other one beats in both memory and time, the fastest first."""
    front: list[Row] = []
    for row in sorted(rows, key=lambda row: (row.step_ns, _need(row))):
        if not front or _need(row) < _need(front[-1]):
            front.append(row)
    return tuple(front)


def _first_below(front: Sequence[Candidate], begin: int, end: int, limit: int) -> int:
    """The first candidate with a lower peak than the limit; the last one if there is none."""
    found = (at for at in range(begin, end) if front[at].peak_bytes <= limit)
    return next(found, end - 1)
