# SPDX-License-Identifier: BSD-3-Clause
"""The devices that a user can name. C++ has the catalogue (src/fit/device_catalogue.cpp)."""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace
from functools import cache

from tidegauge import _core
from tidegauge._util.suggestions import did_you_mean


@dataclass(frozen=True)
class DeviceModel:
    """One kind of device. `compute` and `compute_minor` are its compute capability, `source` says
    where its memory is from."""

    key: str
    name: str
    memory_bytes: int
    compute: int
    compute_minor: int = 0
    multiprocessors: int = 108
    source: str = ""

    @property
    def row(self) -> tuple[str, str, int, int, int, int, str]:
        """The tuple that C++ expects."""
        return astuple(self)


@cache
def device_models() -> tuple[DeviceModel, ...]:
    """All devices of the catalogue, smallest memory first."""
    return tuple(DeviceModel(*row) for row in _core.device_catalogue())


def model_device(memory_bytes: int) -> DeviceModel:
    """A device that is not in the catalogue. It gets the architecture of the one with the nearest
    memory, and so its kernels; its name says so."""
    nearest = min(device_models(), key=lambda model: abs(model.memory_bytes - memory_bytes))
    name = f"a device like {nearest.name}"
    return replace(nearest, key="", name=name, memory_bytes=memory_bytes, source="")


def find_device(key: str) -> DeviceModel:
    """Raises ValueError if the catalogue has no such device."""
    for model in device_models():
        if model.key == key.lower():
            return model
    hint = did_you_mean(key, [model.key for model in device_models()])
    raise ValueError(f"unknown device '{key}': {hint}")
