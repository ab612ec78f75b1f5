# SPDX-License-Identifier: BSD-3-Clause
"""What to change when a run does not fit. Every change is simulated; nothing is a formula."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tidegauge.estimation.contract import Contract, ModelError
from tidegauge.estimation.estimator import Estimate, Estimator
from tidegauge.estimation.sweep import Question

_EXPANDABLE = "expandable_segments:True"


@dataclass(frozen=True)
class Change:
    """Options to add to the command, what they cost the training, and the question with them."""

    options: str
    cost: str
    apply: Callable[[Question], Question]


@dataclass(frozen=True)
class Advice:
    """A change, or several, and what it saves of what the run needs."""

    change: str
    cost: str
    saved_bytes: int
    estimate: Estimate


def advise(estimator: Estimator, question: Question, found: Estimate) -> Iterator[Advice]:
    """The changes that save something, the cheapest first; one that cannot be made is left out.

    If none of them is enough, they are put together one after the other until they are.
    """

    def try_change(change: Change, changed: Question) -> Advice | None:
        try:
            other = changed.ask(estimator)
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
    """A later option takes the place of an earlier one of its name, as on the command line."""
    name = then.options.split()[0]
    before = [f"--{part}" for part in first.options.removeprefix("--").split(" --")]
    kept = [part for part in before if part.split()[0] != name]
    return Change(
        " ".join((*kept, then.options)),
        f"{first.cost}, {then.cost}",
        lambda question: then.apply(first.apply(question)),
    )


def rank_advice(advice: list[Advice]) -> list[Advice]:
    """What makes it fit comes first, then what saves most."""

    def key(each: Advice) -> tuple[bool, bool, int]:
        retries = (each.estimate.margin_bytes or 0) < 0
        return not each.estimate.fits, retries, -each.saved_bytes

    return sorted(advice, key=key)


def list_changes(contract: Contract, question: Question) -> Iterator[Change]:
    """In order of what they cost."""
    plan = question.plan

    def change(cost: str, **changes: Any) -> Change:
        ((name, value),) = changes.items()
        options = f"--{name}" if value is True else f"--{name} {value}"
        return Change(options, cost, lambda other: other.change_plan(**changes))

    if "expandable_segments" not in question.alloc_conf:
        settings = ",".join(filter(None, (question.alloc_conf, _EXPANDABLE)))
        yield Change(
            f"--alloc-conf {settings}",
            "nothing",
            lambda other: other.change(contract, "alloc_conf", settings),
        )
    if plan.is_sharded and plan.reshard != "yes":
        yield change("one more all-gather", reshard="yes")
    if not plan.mp and not plan.dtype:
        yield change("precision", mp="bf16/fp32" if plan.is_sharded else "bf16")
    if plan.ac == "none":
        yield change("some of the forward again", ac="selective")
    if plan.ac != "full":
        yield change("the forward again", ac="full")
    if plan.optimizer in ("", "adamw", "adam"):
        # Adafactor knows no DTensors.
        other = "sgd-momentum" if plan.is_sharded else "adafactor"
        yield change("another optimizer", optimizer=other)
    if plan.is_sharded and not plan.offload:
        yield change("copies to and from the host", offload=True)
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
