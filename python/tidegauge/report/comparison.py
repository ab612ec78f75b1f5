# SPDX-License-Identifier: BSD-3-Clause
"""Compares the peaks of two runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidegauge._util.formatting import render_bytes, render_change, shorten, text_width
from tidegauge.report.names import render_op
from tidegauge.report.summary import Peak, Summary
from tidegauge.report.text import describe_run, join_sections, name_device, wrap


@dataclass(frozen=True)
class Change:
    name: str
    before_bytes: int
    after_bytes: int

    @property
    def change_bytes(self) -> int:
        return self.after_bytes - self.before_bytes


@dataclass(frozen=True)
class DeviceComparison:
    """The peaks of one device. Each list adds up to the change of the total, largest first."""

    device: str
    total: Change
    categories: tuple[Change, ...]
    modules: tuple[Change, ...]  # own bytes, without submodules
    tensors: tuple[Change, ...]
    lines: tuple[Change, ...]  # none unless both runs recorded lines


@dataclass(frozen=True)
class Comparison:
    before: str
    after: str
    devices: tuple[DeviceComparison, ...]


def compare(before: Summary, after: Summary) -> Comparison:
    old = {peak.device: peak for peak in before.peaks}
    new = {peak.device: peak for peak in after.peaks}
    return Comparison(
        before.path,
        after.path,
        tuple(
            _compare_device(device, old.get(device), new.get(device))
            for device in dict.fromkeys([*old, *new])
        ),
    )


def _compare_device(device: str, old: Peak | None, new: Peak | None) -> DeviceComparison:
    return DeviceComparison(
        device,
        Change("total", old.total_bytes if old else 0, new.total_bytes if new else 0),
        _changes(old.categories if old else {}, new.categories if new else {}),
        _changes(_own_bytes(old), _own_bytes(new)),
        _changes(_tensor_bytes(old), _tensor_bytes(new)),
        _compare_lines(old, new),
    )


def _own_bytes(peak: Peak | None) -> dict[str, int]:
    return {module.name: module.own_bytes for module in peak.modules} if peak else {}


def _tensor_bytes(peak: Peak | None) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for group in peak.tensors if peak else ():
        words = (group.category, group.dtype, group.shape, group.module, render_op(group.op))
        name = " ".join(word for word in words if word)
        sizes[name] = sizes.get(name, 0) + group.size_bytes
    return sizes


def _compare_lines(old: Peak | None, new: Peak | None) -> tuple[Change, ...]:
    if any(peak is not None and not peak.lines for peak in (old, new)):
        return ()
    before, after = (
        {line.line: line.size_bytes for line in peak.lines} if peak else {} for peak in (old, new)
    )
    return _changes(before, after)


def _changes(old: Mapping[str, int], new: Mapping[str, int]) -> tuple[Change, ...]:
    changes = [Change(name, old.get(name, 0), new.get(name, 0)) for name in {**old, **new}]
    changed = [change for change in changes if change.change_bytes]
    return tuple(sorted(changed, key=lambda change: (-abs(change.change_bytes), change.name)))


def render_comparison(comparison: Comparison, summaries: tuple[Summary, Summary], top: int) -> str:
    """The output of `tidegauge diff`."""
    sections = [
        [
            *wrap(f"before  {describe_run(summaries[0])}", " " * 8),
            *wrap(f"after   {describe_run(summaries[1])}", " " * 8),
        ]
    ]
    for device in comparison.devices:
        sections.append(_render_device(device))
        sections.append(_render_changes("Modules", device.modules, top))
        sections.append(_render_changes("Tensors", device.tensors, top))
        sections.append(_render_changes("Lines", device.lines, top))
    return join_sections(sections)


def describe_comparison(comparison: Comparison) -> str:
    """`Peak on cpu: +3.20 MiB (+5.2%), from 61.9 MiB to 65.1 MiB; most of it Saved Activation`"""
    if not comparison.devices:
        return "Neither run created a tensor."
    device = comparison.devices[0]
    total = device.total
    before, after = render_bytes(total.before_bytes), render_bytes(total.after_bytes)
    if not total.change_bytes:
        return f"Peak on {device.device}: unchanged, {after}"
    growth = render_growth(total)
    text = f"Peak on {device.device}: {render_change(total.change_bytes)} ({growth}), from {before}"
    most = max(device.categories, key=lambda change: change.change_bytes * total.change_bytes)
    return f"{text} to {after}; most of it {most.name} ({render_change(most.change_bytes)})"


def _render_device(device: DeviceComparison) -> list[str]:
    title = f"Peak on {name_device(device.device)}"
    lines = [f"{title:32}{'before':>12}{'after':>12}{'change':>12}{'':>10}"]
    for change in (*device.categories, device.total):
        lines.append(
            f"  {change.name:30}{render_bytes(change.before_bytes):>12}"
            f"{render_bytes(change.after_bytes):>12}{render_change(change.change_bytes):>12}"
            f"{render_growth(change):>10}"
        )
    return lines


def render_growth(change: Change) -> str:
    if not change.change_bytes:
        return ""
    if not change.before_bytes:
        return "new"
    if not change.after_bytes:
        return "gone"
    return f"{change.change_bytes / change.before_bytes:+.1%}"


def _render_changes(title: str, changes: Iterable[Change], top: int) -> list[str]:
    changes = tuple(changes)
    if not changes:
        return []
    lines = [f"{title} at the peak, by change"]
    for change in changes[: top or None]:
        row = f"{render_change(change.change_bytes):>12}{render_growth(change):>10}  "
        lines.append(row + shorten(change.name, text_width() - len(row)))
    if top and len(changes) > top:
        lines.append(f"  and {len(changes) - top:,} more (--top)")
    return lines
