# SPDX-License-Identifier: BSD-3-Clause
"""The devices that one can ask about by name (`devices.toml`)."""

from __future__ import annotations

import difflib
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True)
class DeviceModel:
    """One kind of device. `compute` is its major compute capability."""

    key: str
    name: str
    memory_bytes: int
    compute: int


@cache
def device_models() -> tuple[DeviceModel, ...]:
    """All of the catalogue, the smallest memory first."""
    rows = tomllib.loads(files("tidegauge").joinpath("devices.toml").read_text(encoding="utf-8"))
    models = (
        DeviceModel(key, row["name"], row["memory_mib"] << 20, row["compute"])
        for key, row in rows.items()
    )
    return tuple(sorted(models, key=lambda model: model.memory_bytes))


def find_device(key: str) -> DeviceModel:
    """ValueError for one that is not in the catalogue."""
    for model in device_models():
        if model.key == key.lower():
            return model
    keys = [model.key for model in device_models()]
    alike = [known for known in keys if key and known.startswith(key.lower())]
    alike = alike or difflib.get_close_matches(key.lower(), keys)
    hint = f"did you mean {' or '.join(alike)}?" if alike else f"known are {', '.join(keys)}"
    raise ValueError(f"no device '{key}' in the catalogue: {hint}")
