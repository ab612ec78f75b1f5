# SPDX-License-Identifier: BSD-3-Clause
"""Limits on the peak of a run, for CI: `--fail-above 1%`, or a file, for example

[peak]                     # limits on the second run, for each device
total = "2GiB"
"Saved Activation" = "512MiB"

[growth]                   # limits on the growth from the first run to the second
total = "1%"
Parameter = "0"

[modules]                  # limits at the second run's peak, including submodules
"Net.blocks" = "800MiB"
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidegauge._util.files import MAX_TEXT_BYTES, read_file
from tidegauge._util.formatting import parse_bytes, render_bytes, render_change
from tidegauge.errors import FormatError
from tidegauge.report.comparison import Change, Comparison
from tidegauge.report.summary import Summary

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


_MOST_DOTS = 1000  # in a line


class BudgetError(ValueError):
    """A limit is invalid; the message says which, and what was expected."""


@dataclass(frozen=True)
class Limit:
    """A number of bytes, or a percentage."""

    value: float
    is_percent: bool

    def __str__(self) -> str:
        return f"{self.value:g}%" if self.is_percent else render_bytes(int(self.value))


@dataclass(frozen=True)
class Breach:
    """A limit that was exceeded."""

    device: str
    what: str
    size_bytes: int  # the size, or the growth
    limit: str
    text: str


@dataclass(frozen=True)
class Budget:
    peak: Mapping[str, Limit]  # by category or "total"
    growth: Mapping[str, Limit]
    modules: Mapping[str, Limit]


def parse_limit(text: str, *, percent: bool = True) -> Limit:
    """Parses `1%`, `20MiB` or `0`. Raises BudgetError for anything else."""
    share = re.fullmatch(r"(\d+(?:\.\d+)?)\s*%", str(text).strip())
    if share and percent and float(share[1]) < 2**62:
        return Limit(float(share[1]), True)
    size_bytes = parse_bytes(str(text))
    if size_bytes is None:
        examples = "1% or 20MiB" if percent else "20MiB"
        raise BudgetError(f"invalid limit '{text}' (expected e.g. {examples})")
    return Limit(size_bytes, False)


def read_budget(path: str) -> Budget:
    """Raises BudgetError if the file is not a budget, OSError if it cannot be read."""
    from tidegauge import _core

    try:
        text = read_file(path, MAX_TEXT_BYTES).decode()
        # A key of many parts would take tomllib a time that grows with their square.
        if any(line.count(".") > _MOST_DOTS for line in text.splitlines()):
            raise BudgetError(f"{path} is nested too deeply")
        tables = tomllib.loads(text)
    except BudgetError:
        raise
    except FormatError as error:
        raise BudgetError(str(error)) from None
    except RecursionError:
        raise BudgetError(f"{path} is nested too deeply") from None
    except ValueError as error:
        raise BudgetError(f"{path} is not valid TOML: {error}") from None
    if unknown := sorted({*tables} - {"peak", "growth", "modules"}):
        raise BudgetError(f"{path}: unknown table [{unknown[0]}]; use [peak], [growth], [modules]")
    if not tables:
        raise BudgetError(f"{path} has no limits; use the tables [peak], [growth] or [modules]")
    return Budget(
        peak=_read_limits(path, "peak", tables, percent=False, names=_core.categories()),
        growth=_read_limits(path, "growth", tables, percent=True, names=_core.categories()),
        modules=_read_limits(path, "modules", tables, percent=False, names=None),
    )


def _read_limits(
    path: str, table: str, tables: dict[str, Any], *, percent: bool, names: list[str] | None
) -> dict[str, Limit]:
    limits = tables.get(table, {})
    if not isinstance(limits, dict):
        raise BudgetError(f"{path}: {table} is not a table; write [{table}] on a line of its own")
    read = {}
    for name, limit in limits.items():
        if names is not None and name not in ("total", *names):
            known = ", ".join(names)
            raise BudgetError(
                f"{path}: [{table}] has an unknown category '{name}' (expected total, {known})"
            )
        try:
            read[name] = parse_limit(limit, percent=percent)
        except BudgetError as error:
            raise BudgetError(f"{path}: [{table}] {name}: {error}") from None
    return read


def read_peak_budget(budget: str) -> Budget:
    """Limits on one run: a size for the peak of each device, or a file without [growth].

    Raises BudgetError if it is neither, OSError if the file cannot be read.
    """
    if not budget.endswith(".toml"):
        return Budget({"total": parse_limit(budget, percent=False)}, {}, {})
    limits = read_budget(budget)
    if limits.growth:
        raise BudgetError(f"{budget}: [growth] compares two runs; use it with `tidegauge diff`")
    return limits


def find_breaches(budget: Budget, comparison: Comparison, after: Summary) -> list[Breach]:
    """The exceeded limits. Ignores meta, which has no memory, unless it is the only device."""
    breaches = []
    devices = {device.device for device in comparison.devices}
    ignored = {"meta"} if devices - {"meta"} else set()
    for device in comparison.devices:
        if device.device in ignored:
            continue
        changes = {change.name: change for change in (device.total, *device.categories)}
        for name, limit in budget.growth.items():
            if (change := changes.get(name)) and _grew_above(change, limit):
                grew = f"{render_change(change.change_bytes)} ({_percent(change)})"
                text = f"{device.device}: {name} grew by {grew}; the limit is {limit}"
                breaches.append(Breach(device.device, name, change.change_bytes, str(limit), text))
    return breaches + find_peak_breaches(budget, after)


def find_peak_breaches(budget: Budget, summary: Summary) -> list[Breach]:
    """The exceeded limits that do not compare two runs. Ignores meta as `find_breaches` does."""
    breaches = []
    only_meta = all(peak.device == "meta" for peak in summary.peaks)
    for peak in summary.peaks:
        if peak.device == "meta" and not only_meta:
            continue
        trees = {module.name: module.tree_bytes for module in peak.modules}
        sizes = {"total": peak.total_bytes, **peak.categories}
        for limits, held in ((budget.peak, sizes), (budget.modules, trees)):
            for name, limit in limits.items():
                size = held.get(name, 0)
                if size > limit.value:
                    text = f"{peak.device}: {name} has {render_bytes(size)}; the limit is {limit}"
                    breaches.append(Breach(peak.device, name, size, str(limit), text))
    return breaches


def _grew_above(change: Change, limit: Limit) -> bool:
    allowed = change.before_bytes * limit.value / 100 if limit.is_percent else limit.value
    return change.change_bytes > allowed


def _percent(change: Change) -> str:
    return f"{change.change_bytes / change.before_bytes:+.2%}" if change.before_bytes else "new"
