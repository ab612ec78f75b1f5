# SPDX-License-Identifier: BSD-3-Clause
"""Compares a recorded snapshot with its simulation, and simulates it with other settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from typing import Literal, get_args

from tidegauge import _core
from tidegauge.allocator.snapshot_file import MAX_FILE_BYTES, DeviceRecord, read_snapshot
from tidegauge.errors import FormatError

Tie = Literal["address", "counter", "private-counter"]
Deferred = Literal["recorded", "low", "high"]


@dataclass(frozen=True)
class RunFigures:
    """Memory figures of one device in one run.

    `unused_at_peak_bytes` and `slack_at_peak_bytes` are taken at the moment with the most active
    bytes while the peak was reserved: reserved but not active, and active but not requested.
    """

    peak_reserved_bytes: int
    peak_active_bytes: int
    unused_at_peak_bytes: int
    slack_at_peak_bytes: int
    final_reserved_bytes: int
    final_active_bytes: int
    segments: int
    segment_events: int
    out_of_memory: int

    @property
    def fragmentation(self) -> float:
        """The share of the reserved bytes at the peak that no block used."""
        return (
            self.unused_at_peak_bytes / self.peak_reserved_bytes
            if self.peak_reserved_bytes
            else 0.0
        )


@dataclass(frozen=True)
class StepFigures:
    """Figures of torch.cuda.memory_stats; `segments` are those at the end of the step."""

    requested_bytes: int
    allocated_bytes: int
    active_bytes: int
    reserved_bytes: int
    segments: int


@dataclass(frozen=True)
class Divergence:
    """The first event at which the simulation differs from the recording."""

    event: int
    what: str


@dataclass(frozen=True)
class WhatIf:
    """The same requests with other settings.

    `saved_bytes`: by how much they lower the peak of the reserved memory; may be negative.
    """

    alloc_conf: str
    figures: RunFigures
    saved_bytes: int


@dataclass(frozen=True)
class DeviceReplay:
    """One device of a snapshot.

    `simulated` starts from the recorded state and should equal `recorded`; `divergence` is the
    first difference. If the caller sets `alloc_conf` or `deferred`, `simulated` uses these and
    starts like `what_ifs`: from the blocks that were live before the first event, without the
    cached blocks of that moment. `same_settings` is the recorded run from that start, for
    comparison.
    """

    device: int
    events: int
    tie: Tie
    deferred: Deferred
    recorded_conf: str
    alloc_conf: str
    recorded: RunFigures
    simulated: RunFigures
    is_consistent: bool
    divergence: Divergence | None
    same_settings: RunFigures
    what_ifs: list[WhatIf]


def replay_snapshot(
    path: str | PathLike[str],
    *,
    tie: Tie | None = None,
    alloc_conf: str | None = None,
    recorded_conf: str | None = None,
    deferred: Deferred = "recorded",
    device_memory_bytes: int = 0,
    max_file_bytes: int = MAX_FILE_BYTES,
) -> list[DeviceReplay]:
    """Replays a file of `torch.cuda.memory._dump_snapshot`, device by device.

    `tie`: the rule for blocks of equal size, which depends on the torch version: "address", segment
    "counter", or "private-counter" (counter only in private pools); see docs/allocator.md. The
    default is the rule that follows the recording furthest; if several do, that of the torch
    version that writes such files.
    `alloc_conf`: settings to simulate instead of the recorded ones.
    `recorded_conf`: the settings of the run, if the file does not contain them.
    `deferred`: when a freed block that another stream used becomes free: as "recorded", at the next
    request ("low"), or when the cache is emptied ("high"). On another machine, the truth is in
    between.
    `device_memory_bytes`: the memory of the device, if it was a limit.

    Raises FormatError for a file that is not a snapshot or contradicts itself, OSError for a file
    that cannot be read, and ValueError for settings that torch rejects.
    """
    if tie not in (None, *get_args(Tie)):
        known = ", ".join(map(repr, get_args(Tie)))
        raise ValueError(f"unknown tie rule {tie!r}: expected {known} or None")
    if deferred not in get_args(Deferred):
        known = ", ".join(map(repr, get_args(Deferred)))
        raise ValueError(f"unknown policy for deferred frees {deferred!r}: expected {known}")
    for given in (alloc_conf, recorded_conf):
        _core.check_alloc_config(given or "")
    snapshot = read_snapshot(path, max_file_bytes=max_file_bytes)
    settings = snapshot.settings if recorded_conf is None else recorded_conf
    try:
        _core.check_alloc_config(settings)
    except ValueError as error:
        raise FormatError(f"{path}: its {error}; pass the settings as recorded_conf.") from None
    replays = []
    for device, record in snapshot.devices.items():
        try:
            trace = _core.AllocatorTrace(record.events, record.segments, record.blocks, settings)
            options = settings, alloc_conf, tie, deferred, device_memory_bytes
            replays.append(_replay_device(device, record, trace, *options))
        except ValueError as error:
            raise FormatError(
                f"{path}: device {device}: {error}. The file is damaged, or the run used other "
                "settings: record it again, or pass them as recorded_conf."
            ) from None
    return replays


def _replay_device(
    device: int,
    record: DeviceRecord,
    trace: _core.AllocatorTrace,
    settings: str,
    alloc_conf: str | None,
    tie: Tie | None,
    deferred: Deferred,
    total_bytes: int,
) -> DeviceReplay:
    rules: list[Tie] = ["address", "counter"] if tie is None else [tie]
    if tie is None and record.has_pool_ids:
        rules = ["counter", "address", "private-counter"]
    chosen, simulated, divergence = _follow(trace, rules, total_bytes)

    def simulate(conf: str) -> RunFigures:
        return RunFigures(**trace.replay_fresh(conf, chosen, total_bytes, deferred))

    same_settings = simulate(settings)
    if alloc_conf is not None or deferred != "recorded":
        simulated = simulate(settings if alloc_conf is None else alloc_conf)
        divergence = None
    return DeviceReplay(
        device=device,
        events=record.event_count,
        tie=chosen,
        deferred=deferred,
        recorded_conf=settings,
        alloc_conf=settings if alloc_conf is None else alloc_conf,
        recorded=RunFigures(**trace.recorded()),
        simulated=simulated,
        is_consistent=trace.is_consistent(),
        divergence=divergence,
        same_settings=same_settings,
        what_ifs=[
            _simulate_change(settings, change, simulate, same_settings)
            for change in _changes(settings)
        ],
    )


def _follow(
    trace: _core.AllocatorTrace, rules: list[Tie], total_bytes: int
) -> tuple[Tie, RunFigures, Divergence | None]:
    """The simulation with the rule that agrees with the recording for longest."""
    best: tuple[Tie, RunFigures, Divergence | None] | None = None
    for rule in rules:
        figures, at = trace.replay(rule, total_bytes)
        divergence = None if at is None else Divergence(*at)
        if divergence is None:
            return rule, RunFigures(**figures), None
        if best is None or best[2] is None or divergence.event > best[2].event:
            best = rule, RunFigures(**figures), divergence
    assert best is not None
    return best


def _changes(settings: str) -> list[str]:
    """Settings worth trying: the other kind of segments, and limits on splitting."""
    config = settings.replace(" ", "")
    is_expandable = "expandable_segments:True" in config
    return [
        f"expandable_segments:{not is_expandable}",
        "max_split_size_mb:128",
        "max_split_size_mb:512",
    ]


def _simulate_change(
    settings: str,
    change: str,
    simulate: Callable[[str], RunFigures],
    same_settings: RunFigures,
) -> WhatIf:
    # If a key occurs twice, torch uses the last one.
    figures = simulate(",".join(filter(None, (settings, change))))
    saved_bytes = same_settings.peak_reserved_bytes - figures.peak_reserved_bytes
    return WhatIf(change, figures, saved_bytes)
