# SPDX-License-Identifier: BSD-3-Clause
"""From the bytes of tensors to the bytes of a device: what a traced run would take of it.

tensors              measured    by the tracker, at the moment of the peak reserve
rounding and slack   modelled    to 512 bytes, and what is too little to split off
unused in segments   modelled    fragmentation
= reserved                       what torch's allocator gets from the device
cuBLAS workspaces    assumed     one for each thread that multiplies matrices
CUDA context         assumed
communication        assumed     where the run had several ranks
= on the device                  what nvidia-smi would show
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath
from typing import Literal

import torch

from tidegauge import _C
from tidegauge.allocator.devices import DeviceModel, device_models
from tidegauge.allocator.replay import RunFigures, Tie

Basis = Literal["measured", "simulated", "modelled", "assumed"]

_MIB = 1 << 20
# By default these, beside what the user asks for.
_SETTINGS = ("", "expandable_segments:True", "max_split_size_mb:128", "max_split_size_mb:512")


@dataclass(frozen=True)
class Assumptions:
    """What no trace can tell. The user's to set.

    `context_bytes`: the CUDA context and the code of the libraries.
    `cublas_workspaces`: forward and autograd threads have one each.
    `cublas_workspace_bytes`: None: by the device, 32 MiB from compute capability 9 on, else 8.125.
    `communication_bytes`: buffers of NCCL; None: 512 MiB where the run had several ranks, else 0.
    """

    context_bytes: int = 500 * _MIB
    cublas_workspaces: int = 2
    cublas_workspace_bytes: int | None = None
    communication_bytes: int | None = None

    def resolve(self, compute: int, world_size: int) -> Assumptions:
        """With a figure for everything."""
        workspace_bytes = self.cublas_workspace_bytes
        if workspace_bytes is None:
            workspace_bytes = 33_554_432 if compute >= 9 else 8_519_680
        communication_bytes = self.communication_bytes
        if communication_bytes is None:
            communication_bytes = 512 * _MIB if world_size > 1 else 0
        return replace(
            self,
            cublas_workspace_bytes=workspace_bytes,
            communication_bytes=communication_bytes,
        )

    @property
    def total_bytes(self) -> int:
        """Of a resolved one."""
        assert self.cublas_workspace_bytes is not None
        assert self.communication_bytes is not None
        workspaces = self.cublas_workspaces * self.cublas_workspace_bytes
        return self.context_bytes + workspaces + self.communication_bytes


@dataclass(frozen=True)
class Layer:
    """One layer, or a sum of those above it (`basis` None)."""

    name: str
    size_bytes: int
    basis: Basis | None


@dataclass(frozen=True)
class Setting:
    """The run under other settings. `saved_bytes` of the peak reserve may be negative."""

    alloc_conf: str
    figures: RunFigures
    saved_bytes: int


@dataclass(frozen=True)
class DeviceMemory:
    """What a run would take of a device.

    `fits` is None without a device. `smallest` is the first of the catalogue that it fits, None if
    there is none or nobody asked.
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
) -> DeviceMemory:
    """Replays a trace file (`MemTracker(record=...)`, `tidegauge run`) through the allocator.

    `alloc_confs`: settings as of PYTORCH_CUDA_ALLOC_CONF; the first is the one that the layers are
    of, and several make a table. `traced_device`: whose storages are taken ("cpu", "cuda:0"); by
    default those of the device with the highest peak that is not the CPU, or else of the CPU.
    `catalogue`: where to look for the smallest device that fits; by default all that we know.
    `peaks`: bytes by device, of who knows them already; else the trace is read for them first.

    FormatError, OSError for a file that is none or cannot be read; ValueError for settings that
    torch refuses, and for a device that the run has not used.
    """
    for settings in alloc_confs:
        _C.check_alloc_config(settings)
    reader = _C.Reader(fspath(path))
    if peaks is None:
        peaks = {str(device): sum(split) for device, split in reader.replay().peak()}
    chosen = choose_device(peaks, traced_device)
    stream = _C.RequestStream(fspath(path), chosen)
    world_size = _read_world_size(reader)

    def assume(model: DeviceModel | None) -> Assumptions:
        compute = model.compute if model else 8
        return (assumptions or Assumptions()).resolve(compute, world_size)

    def simulate(settings: str, model: DeviceModel | None = None) -> RunFigures:
        limits = (model.memory_bytes, assume(model).total_bytes) if model else (0, 0)
        return RunFigures(**stream.simulate(settings, tie, *limits))

    first, *others = alloc_confs or _SETTINGS
    figures = simulate(first)

    def fits(model: DeviceModel) -> bool:
        # What is active at once is too much for the small ones, without a simulation.
        at_least = figures.peak_active_bytes + assume(model).total_bytes
        return at_least <= model.memory_bytes and simulate(first, model).out_of_memory == 0

    failed = simulate(first, device).out_of_memory if device else 0
    models = device_models() if catalogue is None else catalogue
    smallest = next(filter(fits, models), None)
    rows = [(settings, simulate(settings)) for settings in others]
    return DeviceMemory(
        trace=fspath(path),
        traced_device=str(chosen),
        requests=stream.request_count,
        alloc_conf=first,
        figures=figures,
        layers=_layers(figures, assume(device)),
        assumptions=assume(device),
        device=device,
        fits=None if device is None else failed == 0,
        failed_requests=failed,
        smallest=smallest,
        settings=[
            Setting(settings, other, figures.peak_reserved_bytes - other.peak_reserved_bytes)
            for settings, other in rows
        ],
    )


def _layers(figures: RunFigures, assumed: Assumptions) -> list[Layer]:
    reserved = figures.peak_reserved_bytes
    unused = figures.unused_at_peak_bytes
    slack = figures.slack_at_peak_bytes
    return [
        Layer("tensors", reserved - unused - slack, "measured"),
        Layer("rounding and slack", slack, "modelled"),
        Layer("active", reserved - unused, None),
        Layer("unused in segments", unused, "modelled"),
        Layer("reserved", reserved, None),
        *assumed_layers(assumed),
        Layer("on the device", reserved + assumed.total_bytes, None),
    ]


def assumed_layers(assumed: Assumptions) -> list[Layer]:
    """Of a resolved one."""
    assert assumed.cublas_workspace_bytes is not None
    assert assumed.communication_bytes is not None
    workspaces = assumed.cublas_workspaces * assumed.cublas_workspace_bytes
    return [
        Layer("cuBLAS workspaces", workspaces, "assumed"),
        Layer("CUDA context", assumed.context_bytes, "assumed"),
        Layer("communication", assumed.communication_bytes, "assumed"),
    ]


def _read_world_size(reader: _C.Reader) -> int:
    text = reader.run_facts().get("world_size", "")
    return int(text) if text.isdecimal() else 1


def choose_device(peaks: Mapping[str, int], wanted: str | None) -> torch.device:
    """`wanted`, or the device with the highest of `peaks` that is not the CPU, or the CPU.

    ValueError for one that has none of these.
    """
    if wanted is not None and wanted not in peaks:
        seen = ", ".join(peaks) or "none"
        raise ValueError(f"the run used no memory on device '{wanted}' (it used: {seen})")
    real = [device for device in peaks if device.partition(":")[0] not in ("cpu", "meta")]
    chosen = wanted or max(real, key=lambda device: peaks[device], default="cpu")
    try:
        return torch.device(chosen)
    except RuntimeError:
        raise ValueError(f"this torch does not support device '{chosen}'") from None
