# SPDX-License-Identifier: BSD-3-Clause
"""Suggests changes when a run does not fit. Each suggestion is simulated, not computed."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tidegauge.estimation.contract import Contract, ModelError
from tidegauge.estimation.estimator import Estimate, Estimator
from tidegauge.estimation.optimizers import OPTIMIZERS
from tidegauge.estimation.plan import Plan
from tidegauge.estimation.sweep import Question
from tidegauge.report.names import render_op

_EXPANDABLE = "expandable_segments:True"
_FREE = "none"
_BATCH = "--set batch"
MOST_DEVICES = 1024
"""for a copy of the model; advice asks for at most as many, or else for twice as many as now"""


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
    question: Question  # with the changes


def advise(estimator: Estimator, question: Question, found: Estimate) -> Iterator[Advice]:
    """Changes that save memory, cheapest first. Skips changes that this program cannot make.

    If no single change is enough, combines them one by one until the run fits. Devices are added
    last: the smallest number that makes it fit, alone or else with all other changes.
    If one tensor alone exceeds the device, only changes that make it smaller are of use.
    """
    too_large = find_too_large(found)

    def try_change(change: Change) -> Advice | None:
        try:
            with warnings.catch_warnings(action="ignore"):  # of torch, about a change of ours
                changed = change.apply(question)
                other = changed.estimate(estimator)
        except (ValueError, NotImplementedError, ModelError):
            return None
        if too_large and _largest_tensor(other)[0] >= too_large[0]:
            return None
        saved_bytes = found.needed_bytes - other.needed_bytes
        if saved_bytes <= 0:
            return None
        return Advice(change.options, change.cost, saved_bytes, other, changed)

    useful: list[Change] = []
    is_enough = False
    for change in list_changes(estimator.contract, question):
        if (advice := try_change(change)) is not None:
            useful.append(change)
            is_enough = is_enough or _fits(advice)
            yield advice
    if not is_enough:
        last = None
        for together in _combine(estimator.contract, useful):
            last = try_change(together) or last
            if is_enough := _fits(last):
                last = _drop_needless(try_change, together) or last
                break
        if last is not None:
            yield last
    alone = _find_fewest_devices(try_change, Change(()), question)
    if alone is not None:
        yield alone
    if not is_enough and not _fits(alone):
        together = _combine_for_devices(estimator.contract, question, useful)
        more = _find_fewest_devices(try_change, together, question) if together.parts else None
        if more is not None:
            yield more


def _fits(advice: Advice | None) -> bool:
    """Without retries of the allocator, which cost time."""
    return advice is not None and advice.estimate.verdict == "fits"


def _combine(contract: Contract, useful: Sequence[Change]) -> Iterator[Change]:
    """More and more of the changes together, at last with batch 1."""
    if not useful:
        return
    together = useful[0]
    for change in useful[1:]:
        together = together.add(change)
        yield together
    if (least := together.add(_least_batch(contract))) != together and _has_batch(useful):
        yield least


def _drop_needless(
    try_change: Callable[[Change], Advice | None], together: Change
) -> Advice | None:
    """Leaves out needless parts, the costliest first. The last is needed: it made the run fit."""
    best = None
    for part in together.parts[-2::-1]:
        fewer = Change(tuple(each for each in together.parts if each is not part))
        if _fits(advice := try_change(fewer)):
            together, best = fewer, advice
    return best


def _combine_for_devices(
    contract: Contract, question: Question, useful: Sequence[Change]
) -> Change:
    """The useful changes in the form that suits shards, and what only shards can do."""
    sharded = _change_devices(question.plan, 2 * _count_devices(question.plan)).apply(question)
    options = {part.option for change in useful for part in change.parts}
    if not question.plan.is_sharded:
        options.add("--offload")
    together = Change(())
    for change in list_changes(contract, sharded):
        if change.parts[0].option in options:
            together = together.add(change)
    return together.add(_least_batch(contract)) if _has_batch(useful) else together


def _has_batch(changes: Sequence[Change]) -> bool:
    return any(part.option == _BATCH for change in changes for part in change.parts)


def _least_batch(contract: Contract) -> Change:
    return _change_question(contract, _BATCH, "batch", "1", "more steps")


def _count_devices(plan: Plan) -> int:
    """Of each copy of the model."""
    return plan.dp or plan.shards


def _find_fewest_devices(
    try_change: Callable[[Change], Advice | None], others: Change, question: Question
) -> Advice | None:
    """The fewest devices that make the run fit together with `others`. If none do: twice as many,
    if that saves anything.
    """
    plan = question.plan
    now = _count_devices(plan)
    tried: dict[int, Advice | None] = {}

    def try_count(count: int) -> Advice | None:
        if count not in tried:
            tried[count] = try_change(others.add(_change_devices(plan, count)))
        return tried[count]

    if _fits(try_count(2 * now)):
        enough = 2 * now
    elif _fits(try_count(max(MOST_DEVICES, 2 * now))):
        enough = max(MOST_DEVICES, 2 * now)
    else:
        return tried[2 * now]
    too_few = now if not plan.dp else now - 1  # FSDP2 may be enough on the devices of DDP
    while enough - too_few > 1:
        count = _guess_count(tried, too_few, enough)
        if _fits(try_count(count)):
            enough = count
        else:
            too_few = count
    return tried[enough]


def _guess_count(tried: dict[int, Advice | None], too_few: int, enough: int) -> int:
    """Between the two, excluding both. Shards make memory `fixed + parts / count`, about; so the
    two nearest tries say where it reaches the device. After a few tries, halves what is left.
    """
    known = sorted((count, each.estimate) for count, each in tried.items() if each is not None)
    if 2 <= len(known) < 6:
        (count_a, a), (count_b, b) = sorted(known, key=lambda row: abs(row[0] - enough))[:2]
        parts = (a.needed_bytes - b.needed_bytes) / (1 / count_a - 1 / count_b)
        fixed = a.needed_bytes - parts / count_a
        assert a.device is not None
        if parts > 0 and a.device.memory_bytes > fixed:
            guess = math.ceil(parts / (a.device.memory_bytes - fixed))
            return min(max(guess, too_few + 1), enough - 1)
    return (too_few + enough) // 2


def find_planned(estimator: Estimator, advice: Sequence[Advice]) -> Question | None:
    """What `tidegauge plan` should be asked: the first run that fits by checkpointing of blocks,
    because some blocks may not need it. None if there is none, or if times are not known.
    """
    for each in advice:
        found = each.estimate
        if not (_fits(each) and "--ac " in each.change and found.time and found.device):
            continue
        if found.high_bytes <= found.device.memory_bytes and estimator.step_of(found).blocks:
            return each.question.change_plan(ac="none")
    return None


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


def _change_devices(plan: Plan, count: int) -> Change:
    """`count` devices for each copy of the model."""
    if plan.hsdp:
        cost = f"{count} devices for each copy instead of {plan.shards}"
        return _change(cost, hsdp=f"{plan.copies}x{count}")
    if plan.dp:
        cost = f"FSDP2 over {count} devices instead of --dp {plan.dp}"
        apply = lambda other: other.change_plan(dp=0, zero=False, fsdp=count)  # noqa: E731
        return Change((Part("--fsdp", f"--fsdp {count}", cost, apply),))
    return _change(f"{count} devices instead of {plan.fsdp or 1}", fsdp=count)


def _change(cost: str, **changes: Any) -> Change:
    """A change of one option of the plan."""
    ((name, value),) = changes.items()
    text = f"--{name}" if value is True else f"--{name} {value}"
    return Change((Part(f"--{name}", text, cost, lambda other: other.change_plan(**changes)),))


def _change_question(contract: Contract, option: str, name: str, value: str, cost: str) -> Change:
    joint = "=" if option.startswith("--set") else " "
    apply = lambda other: other.change(contract, name, value)  # noqa: E731
    return Change((Part(option, f"{option}{joint}{value}", cost, apply),))
