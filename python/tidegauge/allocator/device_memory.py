# SPDX-License-Identifier: BSD-3-Clause
"""What a recorded run would take of a CUDA device, and what other allocator settings would."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import TYPE_CHECKING

from tidegauge import _C
from tidegauge.allocator.devices import DeviceModel
from tidegauge.allocator.replay import RunFigures, Tie
from tidegauge.allocator.verdict import Assumptions, Layer, Verdict, judge

if TYPE_CHECKING:
    import torch

# The table of settings, if the user names none.
_OTHER_SETTINGS = ("expandable_segments:True", "max_split_size_mb:128", "max_split_size_mb:512")


@dataclass(frozen=True)
class Setting:
    """The run under other settings. `saved_bytes` of the peak reserve may be negative."""

    alloc_conf: str
    figures: RunFigures
    saved_bytes: int


@dataclass(frozen=True)
class DeviceMemory:
    """What a run would take of a device.

    `alloc_conf` are the settings of `figures` and `layers`. `verdict` has the band; `layers`,
    `assumptions`, `fits`, `failed_requests` and `smallest` are its members. `fits` is None without
    a device.
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
    settings: list[Setting]
    verdict: Verdict


def replay_trace(
    path: str | PathLike[str],
    *,
    alloc_confs: Sequence[str] = (),
    device: DeviceModel | None = None,
    traced_device: str | None = None,
    assumptions: Assumptions | None = None,
    tie: Tie = "counter",
    catalogue: Sequence[DeviceModel] | None = None,
    peaks: Mapping[str, int] | None = None,
    has_settings: bool = True,
) -> DeviceMemory:
    """Replays a trace file (`MemTracker(record=...)`, `tidegauge run`) through the allocator.

    `alloc_confs`: settings as in PYTORCH_CUDA_ALLOC_CONF. The layers and the verdict are of the
    first one; if there is none, of torch's default, and the band covers expandable segments, too.
    Several make a table. `traced_device`: whose tensors are taken ("cpu", "cuda:0"); by default
    the device with the highest peak that is not the CPU, or else the CPU. `catalogue`: where to
    look for the smallest device that fits; by default all that tidegauge knows. `peaks`: bytes by
    device, if the caller has them; otherwise the trace is read for them first. `has_settings`:
    False leaves the table of other settings out.

    FormatError, OSError if the file is no trace or cannot be read; ValueError for settings that
    torch refuses, and for a device that the run did not use.
    """
    reader = _C.Reader(fspath(path))
    if peaks is None:
        peaks = {str(device): sum(split) for device, split in reader.replay().peak()}
    chosen = choose_device(peaks, traced_device)
    return replay_requests(
        _C.RequestStream(fspath(path), chosen),
        reader.run_facts(),
        trace=fspath(path),
        traced_device=str(chosen),
        alloc_confs=alloc_confs,
        device=device,
        assumptions=assumptions,
        tie=tie,
        catalogue=catalogue,
        has_settings=has_settings,
    )


def replay_requests(
    requests: _C.RequestStream,
    facts: Mapping[str, str],
    *,
    trace: str,
    traced_device: str,
    alloc_confs: Sequence[str] = (),
    device: DeviceModel | None = None,
    assumptions: Assumptions | None = None,
    tie: Tie = "counter",
    catalogue: Sequence[DeviceModel] | None = None,
    has_settings: bool = True,
) -> DeviceMemory:
    """As `replay_trace`, for requests that were read already. `facts`: of the trace."""
    for settings in alloc_confs:
        _C.check_alloc_config(settings)

    def simulate(settings: str) -> RunFigures:
        return RunFigures(**requests.simulate(settings, tie))

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
            Setting(settings, other, figures.peak_reserved_bytes - other.peak_reserved_bytes)
            for settings, other in rows
        ],
        verdict=verdict,
    )


def choose_device(peaks: Mapping[str, int], wanted: str | None) -> torch.device:
    """`wanted`, or the device with the highest of `peaks` that is not the CPU, or the CPU.

    ValueError for one that has none of these.
    """
    import torch  # takes seconds, and reports do not need it

    chosen = _C.choose_device(list(peaks.items()), wanted)
    try:
        return torch.device(chosen)
    except RuntimeError:
        raise ValueError(f"this torch does not support device '{chosen}'") from None
