# SPDX-License-Identifier: BSD-3-Clause
"""The memory that a recorded run would need on a CUDA device, also with other settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath

from tidegauge import _core
from tidegauge.allocator.devices import DeviceModel
from tidegauge.allocator.replay import RunFigures, Tie, WhatIf
from tidegauge.allocator.verdict import Assumptions, Layer, Verdict, judge

# Compared in the table of settings, unless the user names settings.
_OTHER_SETTINGS = ("expandable_segments:True", "max_split_size_mb:128", "max_split_size_mb:512")


Setting = WhatIf


@dataclass(frozen=True)
class DeviceMemory:
    """The memory that a run would need on a device.

    `figures` and `layers` are for the settings `alloc_conf`. `verdict` has the band; `layers`,
    `assumptions`, `fits`, `failed_requests` and `smallest` are its members. `fits` is None without
    a device. `tie`: the rule for blocks of equal size.
    """

    trace: str
    traced_device: str
    requests: int
    alloc_conf: str
    figures: RunFigures
    layers: list[Layer]
    assumptions: Assumptions
    device: DeviceModel | None
    fits: bool | None
    failed_requests: int
    smallest: DeviceModel | None
    settings: list[WhatIf]
    verdict: Verdict
    tie: str


def replay_trace(
    path: str | PathLike[str],
    *,
    alloc_confs: Sequence[str] = (),
    device: DeviceModel | None = None,
    traced_device: str | None = None,
    assumptions: Assumptions | None = None,
    tie: Tie | None = None,
    catalogue: Sequence[DeviceModel] | None = None,
    peaks: Mapping[str, int] | None = None,
    has_settings: bool = True,
) -> DeviceMemory:
    """Replays a trace file (`MemTracker(record=...)`, `tidegauge run`) through the allocator.

    `alloc_confs`: settings in the form of PYTORCH_CUDA_ALLOC_CONF. The layers and the verdict are
    for the first one. By default they are for torch's default settings, and the band covers
    expandable segments, too. Several settings make a table. `traced_device`: the device whose
    tensors are replayed ("cpu", "cuda:0"); by default the device with the highest peak other than
    the CPU, or else the CPU. `catalogue`: the devices to search for the smallest one that fits; by
    default all that tidegauge knows. `tie`: as for `replay_snapshot`; by default the rule of the
    torch that recorded the trace. `peaks`: bytes by device, if the caller has them; otherwise they
    are read from the trace first. `has_settings`: False omits the table of other settings.

    Raises FormatError if the file is not a trace, OSError if it cannot be read, and ValueError for
    settings that torch rejects or a device that the run did not use.
    """
    reader = _core.Reader(fspath(path))
    if peaks is None:
        peaks = {device: sum(split) for device, split in reader.replay().peak()}
    chosen = choose_device(peaks, traced_device)
    return replay_requests(
        _core.RunRequests(fspath(path), chosen),
        reader.run_facts(),
        trace=fspath(path),
        traced_device=chosen,
        alloc_confs=alloc_confs,
        device=device,
        assumptions=assumptions,
        tie=tie,
        catalogue=catalogue,
        has_settings=has_settings,
    )


def replay_requests(
    requests: _core.RunRequests,
    facts: Mapping[str, str],
    *,
    trace: str,
    traced_device: str,
    alloc_confs: Sequence[str] = (),
    device: DeviceModel | None = None,
    assumptions: Assumptions | None = None,
    tie: Tie | None = None,
    catalogue: Sequence[DeviceModel] | None = None,
    has_settings: bool = True,
) -> DeviceMemory:
    """Like `replay_trace`, for requests that were already read. `facts`: those of the trace."""
    for settings in alloc_confs:
        _core.check_alloc_config(settings)
    rule = _core.choose_tie_rule(tie, dict(facts))

    def simulate(settings: str) -> RunFigures:
        return RunFigures(**requests.simulate(settings, rule))

    first, *others = alloc_confs or ("", *_OTHER_SETTINGS)
    verdict = judge(
        requests,
        facts,
        device=device,
        alloc_conf=first if alloc_confs else None,
        assumptions=assumptions,
        catalogue=catalogue,
        tie=tie,
    )
    figures = simulate(first)
    rows = [(settings, simulate(settings)) for settings in others] if has_settings else []
    return DeviceMemory(
        trace=trace,
        traced_device=traced_device,
        requests=requests.request_count,
        alloc_conf=first,
        figures=figures,
        layers=list(verdict.layers),
        assumptions=verdict.assumptions,
        device=device,
        fits=verdict.fits,
        failed_requests=verdict.failed_requests,
        smallest=verdict.smallest,
        settings=[
            WhatIf(settings, other, figures.peak_reserved_bytes - other.peak_reserved_bytes)
            for settings, other in rows
        ],
        verdict=verdict,
        tie=rule,
    )


def choose_device(peaks: Mapping[str, int], wanted: str | None) -> str:
    """`wanted`, or by default the device with the highest peak other than the CPU, or the CPU.

    Raises ValueError if `wanted` has no peak.
    """
    return _core.choose_device(list(peaks.items()), wanted)
