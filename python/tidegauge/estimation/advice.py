# SPDX-License-Identifier: BSD-3-Clause
"""Suggests changes when a run does not fit. Each suggestion is simulated, not computed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tidegauge.estimation.contract import Contract, ModelError
from tidegauge.estimation.estimator import Estimate, Estimator
from tidegauge.estimation.plan import OPTIMIZERS
from tidegauge.estimation.sweep import Question

_EXPANDABLE = "expandable_segments:True"


@dataclass(frozen=True)
class Change:
    """Options to add to the command, their cost for the training, and how to apply them."""

    options: str
    cost: str
    apply: Callable[[Question], Question]


@dataclass(frozen=True)
class Advice:
    """One or several changes, and by how much they reduce the needed memory."""

    change: str
    cost: str
    saved_bytes: int
    estimate: Estimate


def advise(estimator: Estimator, question: Question, found: Estimate) -> Iterator[Advice]:
    """Changes that save memory, cheapest first. Skips changes that this program cannot make.

    If no single change is enough, combines them one by one until the run fits.
    """

    def try_change(change: Change, changed: Question) -> Advice | None:
        try:
            with warnings.catch_warnings(action="ignore"):  # of torch, about a change of ours
                other = changed.estimate(estimator)
        except (ValueError, NotImplementedError, ModelError):
            return None
        saved_bytes = found.needed_bytes - other.needed_bytes
        return Advice(change.options, change.cost, saved_bytes, other) if saved_bytes > 0 else None

    useful: list[Change] = []
    is_enough = False
    for change in list_changes(estimator.contract, question):
        if (advice := try_change(change, change.apply(question))) is not None:
            useful.append(change)
            is_enough = is_enough or advice.estimate.fits is True
            yield advice
    if is_enough or not useful:
        return
    sum_of_all = useful[0]
    for change in useful[1:]:
        sum_of_all = _add(sum_of_all, change)
        advice = try_change(sum_of_all, sum_of_all.apply(question))
        if advice is not None and (advice.estimate.fits or change is useful[-1]):
            yield advice
            return


def _add(first: Change, then: Change) -> Change:
    """As on the command line, a later option replaces an earlier one of the same name."""
    name = then.options.split()[0]
    before = [f"--{part}" for part in first.options.removeprefix("--").split(" --")]
    kept = [part for part in before if part.split()[0] != name]
    return Change(
        " ".join((*kept, then.options)),
        f"{first.cost}, {then.cost}",
        lambda question: then.apply(first.apply(question)),
    )


def rank_advice(advice: list[Advice]) -> list[Advice]:
    """Changes that make the run fit come first, then the largest savings."""

    def key(each: Advice) -> tuple[bool, bool, int]:
        return not each.estimate.fits, each.estimate.verdict != "fits", -each.saved_bytes

    return sorted(advice, key=key)


def list_changes(contract: Contract, question: Question) -> Iterator[Change]:
    """Candidate changes, cheapest first."""
    plan = question.plan

    def change(cost: str, **changes: Any) -> Change:
        ((name, value),) = changes.items()
        options = f"--{name}" if value is True else f"--{name} {value}"
        return Change(options, cost, lambda other: other.change_plan(**changes))

    if "expandable_segments" not in (question.alloc_conf or ""):
        settings = ",".join(filter(None, (question.alloc_conf, _EXPANDABLE)))
        yield Change(
            f"--alloc-conf {settings}",
            "none",
            lambda other: other.change(contract, "alloc_conf", settings),
        )
    if plan.is_sharded and plan.reshard != "yes":
        yield change("one more all-gather", reshard="yes")
    if not plan.mp and not plan.dtype:
        yield change("lower precision", mp="bf16/fp32" if plan.is_sharded else "bf16")
    if plan.ac == "none":
        yield change("recomputes part of the forward pass", ac="selective")
    if plan.ac != "full":
        yield change("recomputes the forward pass", ac="full")
    for other in plan.optimizer_kind.smaller:
        if OPTIMIZERS[other].supports_dtensor or not plan.has_dtensors:
            yield change("a different optimizer", optimizer=other)
            break
    if plan.is_sharded and not plan.offload:
        yield change("copies between host and device", offload=True)
    batch = getattr(contract.resolve(dict(plan.settings)), "batch", 1)
    if isinstance(batch, int) and batch > 1:
        half = str(batch // 2)
        yield Change(
            f"--set batch={half}",
            "more steps",
            lambda other: other.change(contract, "batch", half),
        )
    if plan.hsdp:
        yield change("twice the devices", hsdp=f"{plan.copies}x{2 * plan.shards}")
    else:
        yield change("twice the devices", fsdp=2 * (plan.fsdp or 1))
