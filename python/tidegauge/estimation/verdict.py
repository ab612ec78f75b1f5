# SPDX-License-Identifier: BSD-3-Clause
"""Whether a recorded run fits a device, and how sure that is.

What tensors ask for is simulated and what the allocator reserves is replayed; what else is on the
device is assumed, within a band. The run fits if it does with the most that may be there, and does
not if it does not with the least. In between nobody can say.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from tidegauge import _C
from tidegauge.allocator import Assumptions, DeviceModel, Layer, RunFigures, device_models
from tidegauge.allocator.device_memory import assumed_layers

VerdictName = Literal["fits", "does not fit", "too close to call"]

_MIB = 1 << 20
_LOW, _HIGH = 0, 1
# Chosen, not measured: no device was at hand. Who knows better gives --assume.
_CONTEXT_BAND = (300 * _MIB, 800 * _MIB)
_COMMUNICATION_BAND = (256 * _MIB, 1024 * _MIB)


@dataclass(frozen=True)
class Verdict:
    """`name` and `margin_bytes` are None without a device; the band is of `needed_bytes`.

    `smallest`: the first device of the catalogue that has the upper end of the band.
    """

    name: VerdictName | None
    needed_bytes: int
    low_bytes: int
    high_bytes: int
    margin_bytes: int | None
    layers: tuple[Layer, ...]
    assumptions: Assumptions
    smallest: DeviceModel | None


@dataclass(frozen=True)
class Traced:
    """A recorded run: its file, the device that counts, and the peak of tensors there."""

    trace: Path
    device: str
    peak_bytes: int
    world_size: int


def judge(
    run: Traced, device: DeviceModel | None, alloc_conf: str, assumed: Mapping[str, int]
) -> Verdict:
    """`assumed`: members of Assumptions that the user has given, and that have no band."""
    stream = _C.RequestStream(str(run.trace), torch.device(run.device))
    free = RunFigures(**stream.simulate(alloc_conf, "counter", 0, 0))

    def assume(end: int | None, model: DeviceModel | None = device) -> Assumptions:
        band = {} if end is None else {"context_bytes": _CONTEXT_BAND[end]}
        if end is not None and run.world_size > 1:
            band["communication_bytes"] = _COMMUNICATION_BAND[end]
        assumptions = dataclasses.replace(Assumptions(), **{**band, **assumed})
        return assumptions.resolve(model.compute if model else 8, run.world_size)

    def need(end: int | None, model: DeviceModel | None = device) -> int:
        return free.peak_reserved_bytes + assume(end, model).total_bytes

    def fits(end: int) -> bool:
        assert device is not None
        limits = (device.memory_bytes, assume(end).total_bytes)
        return stream.simulate(alloc_conf, "counter", *limits)["out_of_memory"] == 0

    models = device_models()
    return Verdict(
        name=_name(fits) if device else None,
        needed_bytes=need(None),
        low_bytes=need(_LOW),
        high_bytes=need(_HIGH),
        margin_bytes=device.memory_bytes - need(None) if device else None,
        layers=_layers(run.peak_bytes, free, assume(None)),
        assumptions=assume(None),
        smallest=next((each for each in models if need(_HIGH, each) <= each.memory_bytes), None),
    )


def _name(fits: Callable[[int], bool]) -> VerdictName:
    if fits(_HIGH):
        return "fits"
    return "too close to call" if fits(_LOW) else "does not fit"


def _layers(peak_bytes: int, figures: RunFigures, assumed: Assumptions) -> tuple[Layer, ...]:
    """Of the peaks of tensors, of active and of reserved bytes, which need not be at one moment."""
    active, reserved = figures.peak_active_bytes, figures.peak_reserved_bytes
    return (
        Layer("tensors", peak_bytes, "simulated"),
        Layer("rounding and slack", active - peak_bytes, "modelled"),
        Layer("active", active, None),
        Layer("unused in segments", reserved - active, "modelled"),
        Layer("reserved", reserved, None),
        *assumed_layers(assumed),
        Layer("on the device", reserved + assumed.total_bytes, None),
    )
