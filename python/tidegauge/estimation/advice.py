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
from tidegauge.report.names import render_op

_EXPANDABLE = "expandable_segments:True"
_FREE = "none"
_MORE_DEVICES = (4, 8, 16)  # times; twice is among the changes


@dataclass(frozen=True)
class Part:
    """An option to add to the command, its cost for the training, and how to apply it."""

    option: str  # its name; a later part of the same name replaces an earlier one
    text: str  # "--ac full"
    cost: str
    apply: Callable[[Question], Question]


@dataclass(frozen=True)
class Change:
    """Options to add to the command."""

    parts: tuple[Part, ...]

    @property
    def options(self) -> str:
        return " ".join(part.text for part in self.parts)

    @property
    def cost(self) -> str:
        """Each cost once; a free part is mentioned only if all are free."""
        costs = [part.cost for part in self.parts if part.cost != _FREE]
        return ", ".join(dict.fromkeys(costs)) or _FREE

    def apply(self, question: Question) -> Question:
        for part in self.parts:
            question = part.apply(question)
        return question

    def add(self, then: Change) -> Change:
        replaced = {part.option for part in then.parts}
        kept = tuple(part for part in self.parts if part.option not in replaced)
        return Change((*kept, *then.parts))


@dataclass(frozen=True)
class Advice:
    """One or several changes, and by how much they reduce the needed memory."""

    change: str
    cost: str
    saved_bytes: int
    estimate: Estimate


def advise(estimator: Estimator, question: Question, found: Estimate) -> Iterator[Advice]:
    """Changes that save memory, cheapest first. Skips changes that this program cannot make.

    If no single change is enough, combines them one by one until the run fits, then adds devices.
    If one tensor alone exceeds the device, only changes that make it smaller are of use.
    """
    too_large = find_too_large(found)

    def try_change(change: Change) -> Advice | None:
        try:
            with warnings.catch_warnings(action="ignore"):  # of torch, about a change of ours
                other = change.apply(question).estimate(estimator)
        except (ValueError, NotImplementedError, ModelError):
            return None
        if too_large and _largest_tensor(other)[0] >= too_large[0]:
            return None
        saved_bytes = found.needed_bytes - other.needed_bytes
        return Advice(change.options, change.cost, saved_bytes, other) if saved_bytes > 0 else None

    useful: list[Change] = []
    is_enough = False
    for change in list_changes(estimator.contract, question):
        if (advice := try_change(change)) is not None:
            useful.append(change)
            is_enough = is_enough or advice.estimate.fits is True
            yield advice
    if is_enough or not useful:
        return
    last = None
    for change in _combine(useful, question):
        advice = try_change(change)
        last = advice or last
        if advice is not None and advice.estimate.fits:
            break
    if last is not None:
        yield last


def _combine(useful: list[Change], question: Question) -> Iterator[Change]:
    """More and more of the changes together; then all of them with more and more devices."""
    together = useful[0]
    for change in useful[1:]:
        together = together.add(change)
        yield together
    plan = together.apply(question).plan
    for factor in _MORE_DEVICES:
        more: dict[str, Any]
        if plan.hsdp:
            more = {"hsdp": f"{plan.copies}x{factor * plan.shards}"}
        else:
            more = {"fsdp": factor * (plan.fsdp or 1)}
        yield together.add(_change(f"{factor} times the devices", **more))


def find_too_large(found: Estimate) -> tuple[int, str] | None:
    """The bytes and the description of one tensor that alone exceeds the device; else None."""
    if found.device is None:
        return None
    size_bytes, text = _largest_tensor(found)
    return (size_bytes, text) if size_bytes > found.device.memory_bytes else None


def _largest_tensor(found: Estimate) -> tuple[int, str]:
    groups = [group for group in found.peak.tensors if group.count]
    largest = max(groups, key=lambda group: group.size_bytes // group.count)
    origin = " ".join(filter(None, (largest.module, render_op(largest.op))))
    text = f"{largest.dtype} {largest.shape}".strip()
    return largest.size_bytes // largest.count, f"{text} of {origin}"


def rank_advice(advice: list[Advice]) -> list[Advice]:
    """Changes that make the run fit come first, then the largest savings."""

    def key(each: Advice) -> tuple[bool, bool, int]:
        return not each.estimate.fits, each.estimate.verdict != "fits", -each.saved_bytes

    return sorted(advice, key=key)


def list_changes(contract: Contract, question: Question) -> Iterator[Change]:
    """Candidate changes, cheapest first."""
    plan = question.plan
    if "expandable_segments" not in (question.alloc_conf or ""):
        settings = ",".join(filter(None, (question.alloc_conf, _EXPANDABLE)))
        yield _change_question(contract, "--alloc-conf", "alloc_conf", settings, _FREE)
    if plan.is_sharded and plan.reshard != "yes":
        yield _change("one more all-gather", reshard="yes")
    if not plan.mp and not plan.dtype:
        yield _change("lower precision", mp="bf16/fp32" if plan.is_sharded else "bf16")
    if plan.ac == "none":
        yield _change("recomputes part of the forward pass", ac="selective")
    if plan.ac != "full":
        yield _change("recomputes the forward pass", ac="full")
    for other in plan.optimizer_kind.smaller:
        if OPTIMIZERS[other].supports_dtensor or not plan.has_dtensors:
            yield _change("a different optimizer", optimizer=other)
            break
    if not plan.dtype:
        yield _change("parameters and states in bfloat16", dtype="bf16")
    if plan.is_sharded and not plan.offload:
        yield _change("copies between host and device", offload=True)
    settings_now = vars(contract.resolve(dict(plan.settings)))
    for name, cost in (("batch", "more steps"), ("seq", "shorter sequences")):
        value = settings_now.get(name, 1)
        if isinstance(value, int) and value > 1:
            half = str(value // 2)
            yield _change_question(contract, f"--set {name}", name, half, cost)
    if plan.hsdp:
        yield _change("2 times the devices", hsdp=f"{plan.copies}x{2 * plan.shards}")
    else:
        yield _change("2 times the devices", fsdp=2 * (plan.fsdp or 1))


def _change(cost: str, **changes: Any) -> Change:
    """A change of one option of the plan."""
    ((name, value),) = changes.items()
    text = f"--{name}" if value is True else f"--{name} {value}"
    return Change((Part(name, text, cost, lambda other: other.change_plan(**changes)),))


def _change_question(contract: Contract, option: str, name: str, value: str, cost: str) -> Change:
    joint = "=" if option.startswith("--set") else " "
    apply = lambda other: other.change(contract, name, value)  # noqa: E731
    return Change((Part(option, f"{option}{joint}{value}", cost, apply),))
