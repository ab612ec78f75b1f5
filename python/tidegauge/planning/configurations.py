# SPDX-License-Identifier: BSD-3-Clause
"""Chooses batch, accumulation, resharding, wrapping and offload together with the checkpointing.

Every combination is simulated without checkpointing, which is its fastest form: recompute only adds
work. From the fastest on, each one gets its own search (planner.py), until the next one would be
slower even without checkpointing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tidegauge.allocator import DeviceModel
from tidegauge.estimation.contract import Contract
from tidegauge.estimation.estimator import Estimator
from tidegauge.estimation.plan import Plan
from tidegauge.planning.planner import BudgetError, PlanResult, Row, find_plan, simulate, speed_of

#: What can be chosen. The checkpointing of the blocks always is.
CHOICES = ("ac", "batch", "reshard", "wrap", "offload")
_WRAPS = (1, 2, 4)
_MOST_VARIANTS = 64


@dataclass(frozen=True)
class Variant:
    """A combination. `fastest`: simulated without checkpointing. `result`: its plan; None if none
    fits, or if none can be faster than the chosen one (`is_slower`). `least_bytes`: what it needs
    at least, if none fits.
    """

    plan: Plan
    fastest: Row
    result: PlanResult | None = None
    is_slower: bool = False
    least_bytes: int = 0


@dataclass(frozen=True)
class Choice:
    """`best` is the result of one of the `variants`, in the order in which they were tried."""

    best: PlanResult
    variants: tuple[Variant, ...]


def parse_choices(text: str) -> tuple[str, ...]:
    """Raises ValueError for an unknown name."""
    names = tuple(text.split(","))
    for name in names:
        if name not in CHOICES:
            raise ValueError(f"invalid try '{name}' (expected some of {','.join(CHOICES)})")
    return names


def list_variants(
    contract: Contract, plan: Plan, choices: Sequence[str], global_batch: int | None
) -> list[Plan]:
    """Raises ValueError if the choices do not suit the plan or the target."""
    if ("batch" in choices) != (global_batch is not None):
        raise ValueError(
            "batch in --try and --global-batch need each other: the global batch is what one step "
            "of all ranks trains on"
        )
    batches = [plan]
    if global_batch is not None:
        batches = [*_split_batch(contract, plan, global_batch)]
    reshards, offloads, wraps = [plan.reshard], [plan.offload], [plan.wrap]
    if {"reshard", "wrap", "offload"} & {*choices}:
        if not plan.is_sharded:
            raise ValueError("reshard, wrap and offload in --try require fsdp or hsdp")
        if "wrap" in choices:
            if contract.shard is not None:
                raise ValueError(f"wrap in --try has no effect: {contract.name} defines shard()")
            wraps = [*dict.fromkeys((plan.wrap, *_WRAPS))]
        if "reshard" in choices:
            reshards = [*dict.fromkeys((plan.reshard, "auto", "no"))]
        if "offload" in choices:
            offloads = [False, True]
    found = [
        each.change(reshard=reshard, wrap=wrap, offload=offload)
        for each, reshard, wrap, offload in itertools.product(batches, reshards, wraps, offloads)
    ]
    if len(found) > _MOST_VARIANTS:
        raise ValueError(
            f"{len(found)} combinations to try, but at most {_MOST_VARIANTS} are simulated; leave "
            "something out of --try"
        )
    return found


def _split_batch(contract: Contract, plan: Plan, global_batch: int) -> Iterator[Plan]:
    """Every micro-batch whose accumulation gives the global batch."""
    contract.resolve({"batch": 1})  # raises if there is no such setting
    ranks = plan.world_size // (plan.tp * plan.cp)
    share, rest = divmod(global_batch, ranks)
    if rest or not share:
        raise ValueError(
            f"the global batch {global_batch} cannot be split over {ranks} ranks; use a "
            f"multiple of {ranks}"
        )
    for batch in range(1, share + 1):
        if share % batch == 0:
            yield plan.change_setting("batch", batch).change(accumulate=share // batch)


def find_configuration(
    estimator: Estimator,
    plans: Sequence[Plan],
    device: DeviceModel,
    *,
    budget_bytes: int | None = None,
    alloc_conf: str | None = None,
    speed: str = "",
    irregular: bool = False,
) -> Choice:
    """The fastest plan of all variants; `irregular`: as in `find_plan`. Raises like `find_plan`,
    BudgetError if no variant fits."""
    budget = device.memory_bytes if budget_bytes is None else budget_bytes
    timed = speed_of(device, speed)
    fastest = [
        (simulate(estimator, plan.change(ac="none"), device, budget, alloc_conf, timed), plan)
        for plan in plans
    ]
    fastest.sort(key=lambda pair: (pair[0].step_ns, pair[0].estimate.high_bytes))
    best: PlanResult | None = None
    least: BudgetError | None = None
    variants = []
    for row, plan in fastest:
        if best is not None and row.step_ns >= best.chosen.step_ns:
            variants.append(Variant(plan, row, is_slower=True))
            continue
        try:
            found = find_plan(
                estimator,
                plan,
                device,
                budget_bytes=budget_bytes,
                alloc_conf=alloc_conf,
                speed=speed,
                irregular=irregular,
            )
        except BudgetError as error:
            variants.append(Variant(plan, row, least_bytes=error.least_bytes))
            if least is None or error.least_bytes < least.least_bytes:
                least = error
            continue
        variants.append(Variant(plan, row, found))
        if best is None or found.chosen.step_ns < best.chosen.step_ns:
            best = found
    if best is None:
        assert least is not None
        raise least
    return Choice(best, tuple(variants))
