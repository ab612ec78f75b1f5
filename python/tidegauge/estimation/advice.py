# SPDX-License-Identifier: BSD-3-Clause
"""What to change when a run does not fit. Every change is simulated; nothing is a formula."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tidegauge.estimation.contract import ModelError
from tidegauge.estimation.estimator import Estimate, Estimator
from tidegauge.estimation.sweep import Question

_EXPANDABLE = "expandable_segments:True"


@dataclass(frozen=True)
class Advice:
    """One change, and what it saves of what the run needs; negative if it needs more."""

    change: str
    cost: str
    saved_bytes: int
    estimate: Estimate


def advise(estimator: Estimator, question: Question, found: Estimate) -> Iterator[Advice]:
    """The cheapest changes first. One that the program cannot follow is left out."""
    for change, cost, changed in list_changes(estimator, question):
        try:
            other = changed.ask(estimator)
        except (ValueError, NotImplementedError, ModelError):
            continue
        yield Advice(change, cost, found.needed_bytes - other.needed_bytes, other)


def rank_advice(advice: list[Advice]) -> list[Advice]:
    """What makes it fit comes first, then what saves most; what saves nothing is left out."""
    useful = [each for each in advice if each.saved_bytes > 0]

    def key(each: Advice) -> tuple[bool, bool, int]:
        retries = (each.estimate.margin_bytes or 0) < 0
        return not each.estimate.fits, retries, -each.saved_bytes

    return sorted(useful, key=key)


def list_changes(estimator: Estimator, question: Question) -> Iterator[tuple[str, str, Question]]:
    """(change, what it costs, question), in order of that cost."""
    plan = question.plan

    def changed(**changes: Any) -> Question:
        return Question(plan.change(**changes), question.device, question.alloc_conf)

    if "expandable_segments" not in question.alloc_conf:
        settings = ",".join(filter(None, (question.alloc_conf, _EXPANDABLE)))
        yield (
            f"--alloc-conf {settings}",
            "nothing",
            Question(plan, question.device, settings),
        )
    if plan.is_sharded and plan.reshard != "yes":
        yield "--reshard yes", "one more all-gather", changed(reshard="yes")
    if not plan.mp and not plan.dtype:
        yield "--mp bf16", "precision", changed(mp="bf16/fp32" if plan.is_sharded else "bf16")
    if plan.ac == "none":
        yield "--ac selective", "some of the forward again", changed(ac="selective")
    if plan.ac != "full":
        yield "--ac full", "the forward again", changed(ac="full")
    if plan.optimizer in ("", "adamw", "adam"):
        # Adafactor knows no DTensors.
        other = "sgd-momentum" if plan.is_sharded else "adafactor"
        yield f"--optimizer {other}", "another optimizer", changed(optimizer=other)
    if plan.is_sharded and not plan.offload:
        yield "--offload", "copies to and from the host", changed(offload=True)
    settings_now = estimator.contract.resolve(dict(plan.settings))
    batch = getattr(settings_now, "batch", 1)
    if isinstance(batch, int) and batch > 1:
        halved = question.change(estimator.contract, "batch", str(batch // 2))
        yield f"--set batch={batch // 2}", "more steps", halved
    if plan.hsdp:
        wider = f"{plan.copies}x{2 * plan.shards}"
        yield f"--hsdp {wider}", "twice the devices", changed(hsdp=wider)
    else:
        ranks = 2 * (plan.fsdp or 1)
        yield f"--fsdp {ranks}", "twice the devices", changed(fsdp=ranks)
