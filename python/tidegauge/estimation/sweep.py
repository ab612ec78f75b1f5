# SPDX-License-Identifier: BSD-3-Clause
"""Estimates many plans: all combinations of values, or a search for the largest that fits."""

from __future__ import annotations

import inspect
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from tidegauge._util.formatting import render_bytes
from tidegauge._util.notebook import render_rows
from tidegauge.allocator import DeviceModel, find_device
from tidegauge.estimation.contract import Contract
from tidegauge.estimation.estimator import Estimate, Estimator, estimate
from tidegauge.estimation.plan import OPTIONS, Plan, parse_option

_LARGEST = 1 << 30


@dataclass(frozen=True)
class SweepPoint:
    """`values` by name. If `estimate` is None, `fault` gives the reason."""

    values: dict[str, str]
    estimate: Estimate | None
    fault: str = ""

    def __str__(self) -> str:
        """`batch 4, ac full: llama.py, FSDP2 over 8 ranks: fits, ...`"""
        values = ", ".join(f"{name} {value}" for name, value in self.values.items())
        return f"{values}: {self.estimate or self.fault}"

    def _repr_html_(self) -> str:
        """For notebooks: that of the estimate."""
        if self.estimate is None:
            return render_rows(str(self), (), ())
        return self.estimate._repr_html_()


@dataclass(frozen=True)
class SweepResult:
    """All points of a sweep, in order: iterate over it, or index it."""

    points: tuple[SweepPoint, ...]

    def __iter__(self) -> Iterator[SweepPoint]:
        return iter(self.points)

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, index: int) -> SweepPoint:
        return self.points[index]

    def __str__(self) -> str:
        """`4 of 6 configurations fit; the largest: batch 8, 61.0 GiB`"""
        if not any(point.estimate for point in self.points):
            return f"none of {len(self.points):,} configurations can be simulated"
        return describe_sweep(self.points)

    def _repr_html_(self) -> str:
        """For notebooks: a row for each point."""
        names = list(self.points[0].values) if self.points else []
        rows = []
        for point in self.points:
            cells = [*point.values.values()]
            if (found := point.estimate) is None:
                rows.append((*cells, "", "", "", f"not possible: {point.fault}"))
                continue
            sizes = (found.peak.total_bytes, found.needed_bytes, found.margin_bytes)
            shown = ["" if size is None else render_bytes(size) for size in sizes]
            rows.append((*cells, *shown, found.verdict or ""))
        return render_rows(str(self), (*names, "tensors", "needs", "margin", "verdict"), rows)


@dataclass(frozen=True)
class Question:
    """A plan, a device and allocator settings: everything that a sweep can change."""

    plan: Plan
    device: DeviceModel | None = None
    alloc_conf: str | None = None

    def change(self, contract: Contract, name: str, text: str) -> Question:
        """`name`: an option, or a setting of the contract. Raises ValueError if unknown."""
        if name == "device":
            return Question(self.plan, find_device(text), self.alloc_conf)
        if name == "alloc_conf":
            return Question(self.plan, self.device, text)
        if name in OPTIONS:
            return self.change_plan(**{name: parse_option(name, text)})
        plan = self.plan.change_setting(name, contract.parse_setting(name, text))
        return Question(plan, self.device, self.alloc_conf)

    def change_plan(self, **changes: Any) -> Question:
        return Question(self.plan.change(**changes), self.device, self.alloc_conf)

    def estimate(self, estimator: Estimator) -> Estimate:
        return estimator.estimate(self.plan, self.device, self.alloc_conf)


def sweep_target(
    target: str | os.PathLike[str] | Contract | nn.Module,
    axes: Mapping[str, Sequence[Any]],
    *,
    settings: Mapping[str, Any] | None = None,
    **options: Any,
) -> SweepResult:
    """Estimates every combination of values, the last name changing fastest.

    `axes`: the values to try by name: arguments of `tidegauge.estimate` ("fsdp", "ac", "device"),
    or settings of the target ("batch"). `settings` and `options`: arguments of `tidegauge.estimate`
    for all combinations. A combination that cannot be simulated has a `fault`; raises ValueError if
    none can::

        tidegauge.sweep("llama.py", {"batch": [1, 2, 4], "ac": ["none", "full"]}, device="l4")
    """
    known = inspect.signature(estimate).parameters
    points = []
    for values in itertools.product(*axes.values()):
        chosen = dict(zip(axes, values, strict=True))
        changed = {name: value for name, value in chosen.items() if name not in known}
        arguments = {name: value for name, value in chosen.items() if name in known}
        texts = {name: str(value) for name, value in chosen.items()}
        try:
            found = estimate(
                target, settings={**(settings or {}), **changed}, **{**options, **arguments}
            )
        except (ValueError, NotImplementedError) as error:
            points.append(SweepPoint(texts, None, str(error)))
            continue
        points.append(SweepPoint(texts, found))
    if points and all(point.estimate is None for point in points):
        raise ValueError(points[0].fault)
    return SweepResult(tuple(points))


def sweep(
    estimator: Estimator, question: Question, axes: Mapping[str, Sequence[str]]
) -> Iterator[SweepPoint]:
    """Every combination, the last name changing fastest. An impossible one has a fault."""
    for texts in itertools.product(*axes.values()):
        values = dict(zip(axes, texts, strict=True))
        try:
            changed = question
            for name, text in values.items():
                changed = changed.change(estimator.contract, name, text)
            found = changed.estimate(estimator)
        except (ValueError, NotImplementedError) as error:
            yield SweepPoint(values, None, str(error))
            continue
        yield SweepPoint(values, found)


def find_telling(points: Sequence[SweepPoint]) -> SweepPoint:
    """The point that answers most: the largest that fits, or the smallest if none fits.

    Without a device, the largest. At least one point must have an estimate.
    """
    sizes = {i: point.estimate.needed_bytes for i, point in enumerate(points) if point.estimate}
    verdicts = {i: point.estimate.fits for i, point in enumerate(points) if point.estimate}
    fitting = [i for i, fits in verdicts.items() if fits or fits is None]
    if fitting:
        return points[max(fitting, key=sizes.__getitem__)]
    return points[min(sizes, key=sizes.__getitem__)]


def describe_sweep(points: Sequence[SweepPoint]) -> str:
    """`4 of 6 configurations fit; the largest: batch 8, 61.0 GiB`; at least one was simulated."""
    point = find_telling(points)
    assert point.estimate is not None
    values = ", ".join(f"{name} {value}" for name, value in point.values.items())
    answer = f"{values}, {render_bytes(point.estimate.needed_bytes)}"
    simulated = [point.estimate for point in points if point.estimate]
    if point.estimate.fits is None:
        return f"{len(simulated):,} configurations; the most memory: {answer}"
    fitting = sum(bool(found.fits) for found in simulated)
    count = f"{fitting:,} of {len(points):,} configurations fit"
    if close := sum(found.verdict == "too close to call" for found in simulated):
        count += f", {close:,} {'is' if close == 1 else 'are'} too close to call"
    return f"{count}; the {'largest' if fitting else 'least memory'}: {answer}"


def find_largest(
    estimator: Estimator, question: Question, name: str
) -> Iterator[tuple[int, Estimate]]:
    """Yields each value tried, first doubling, then bisecting.

    Raises ValueError if the setting is not an integer, or if there is no device.
    """
    start = estimator.contract.resolve(dict(question.plan.settings))
    first: Any = getattr(start, name, None)
    if not isinstance(first, int) or isinstance(first, bool):
        known = [key for key, value in vars(start).items() if isinstance(value, int)]
        raise ValueError(
            f"{name} is not an integer setting of {estimator.contract.name} (integer settings: "
            f"{', '.join(known) or 'none'})"
        )
    if question.device is None:
        raise ValueError(f"searching for the largest {name} requires a device")

    def try_value(value: int) -> Estimate:
        return question.change(estimator.contract, name, str(value)).estimate(estimator)

    yield from _search(try_value)


def to_points(name: str, tried: Sequence[tuple[int, Estimate]]) -> list[SweepPoint]:
    """The values that `find_largest` tried, in order."""
    ordered = sorted(tried, key=lambda row: row[0])
    return [SweepPoint({name: str(value)}, found) for value, found in ordered]


def _search(try_value: Callable[[int], Estimate]) -> Iterator[tuple[int, Estimate]]:
    fitting, failing = 0, _LARGEST
    value = 1
    while failing - fitting > 1:
        found = try_value(value)
        yield value, found
        if found.fits:
            fitting = value
        else:
            failing = value
        value = fitting * 2 if failing == _LARGEST else (fitting + failing) // 2
