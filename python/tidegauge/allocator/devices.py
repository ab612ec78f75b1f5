# SPDX-License-Identifier: BSD-3-Clause
"""The catalogue of devices (`devices.toml`)."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from tidegauge._util.suggestions import did_you_mean


@dataclass(frozen=True)
class DeviceModel:
    """One kind of device. `compute` is its major compute capability."""

    key: str
    name: str
    memory_bytes: int
    compute: int


@cache
def device_models() -> tuple[DeviceModel, ...]:
    """All devices of the catalogue, smallest memory first."""
    rows = tomllib.loads(files("tidegauge").joinpath("devices.toml").read_text(encoding="utf-8"))
    models = (
        DeviceModel(key, row["name"], row["memory_mib"] << 20, row["compute"])
        for key, row in rows.items()
    )
    return tuple(sorted(models, key=lambda model: model.memory_bytes))


def find_device(key: str) -> DeviceModel:
    """Raises ValueError if the catalogue has no such device."""
    for model in device_models():
        if model.key == key.lower():
            return model
    hint = did_you_mean(key, [model.key for model in device_models()])
    raise ValueError(f"unknown device '{key}': {hint}")
