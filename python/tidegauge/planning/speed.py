# SPDX-License-Identifier: BSD-3-Clause
"""The speed of a device: its data sheet, or what the user measured (`tidegauge calibrate`)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidegauge import _core
from tidegauge._util.files import MAX_TEXT_BYTES, read_file, replace_file
from tidegauge.errors import FormatError

_FORMAT = 1
# The real time, in modelled times. Without a calibration this covers the efficiencies that real
# programs reach: a published run on H100s of 500 W took 1.5 times the modelled time. With one, it
# covers the differences between the calibrated run and others.
_BAND_BY_DATA_SHEET = (0.7, 1.7)
_BAND_CALIBRATED = (0.9, 1.1)


@dataclass(frozen=True)
class Speed:
    """A device of the catalogue whose peaks are known. `constants`: members of DeviceSpeed
    (src/plan/device_speed.h) that a calibration replaced. `calibration`: what was measured, in
    words; empty: nothing was.
    """

    device: str
    constants: tuple[tuple[str, float], ...] = ()
    calibration: str = ""

    @property
    def band(self) -> tuple[float, float]:
        """The lowest and the highest real time to expect, in modelled times."""
        return _BAND_CALIBRATED if self.calibration else _BAND_BY_DATA_SHEET

    def change(self, constants: Mapping[str, float], calibration: str) -> Speed:
        return Speed(self.device, tuple(sorted(constants.items())), calibration)

    def describe(self) -> str:
        """What times rest on. Every output with a time has it."""
        if self.calibration:
            return f"calibrated by {self.calibration}"
        return (
            f"not calibrated: from the {_core.speed_source(self.device)} and assumed efficiencies"
        )


def find_speed(device: str) -> Speed | None:
    """The speed of a device of the catalogue, with the user's calibration if there is one. None if
    its peaks are not known. Raises FormatError if the user's file is damaged.
    """
    if not _core.knows_speed(device):
        return None
    return read_calibrations().get(device, Speed(device))


def calibrations_path() -> Path:
    root = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(root) / "tidegauge" / "calibrations.json"


def read_calibrations() -> dict[str, Speed]:
    """By device. Raises FormatError for a damaged file."""
    path = calibrations_path()
    if not path.exists():
        return {}
    advice = "remove it, then run tidegauge calibrate again"
    try:
        whole = json.loads(read_file(path, MAX_TEXT_BYTES, advice))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise FormatError(f"{path} holds no calibrations: {error}; {advice}") from None
    devices = whole.get("devices") if isinstance(whole, dict) else None
    if not isinstance(devices, dict) or whole.get("format") != _FORMAT:
        raise FormatError(f"{path} holds no calibrations of format {_FORMAT}; {advice}")
    return {
        device: _read_speed(device, entry, f"{path}, device '{device}'", advice)
        for device, entry in devices.items()
    }


def _read_speed(device: str, entry: Any, where: str, advice: str) -> Speed:
    known = _core.speed_constants(device)
    constants = entry.get("constants") if isinstance(entry, dict) else None
    calibration = entry.get("calibration") if isinstance(entry, dict) else None
    if not isinstance(constants, dict) or not isinstance(calibration, str) or not calibration:
        raise FormatError(f"{where}: expected constants and the calibration in words; {advice}")
    for name, value in constants.items():
        if name not in known:
            raise FormatError(f"{where}: unknown constant '{name}'; {advice}")
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e30:
            raise FormatError(
                f"{where}: {name} is {value!r} (expected a positive number); {advice}"
            )
    return Speed(device).change(
        {name: float(each) for name, each in constants.items()}, calibration
    )


def save_calibrations(speeds: Mapping[str, Speed]) -> None:
    """Replaces the user's calibrations. Raises OSError if that is not possible."""
    path = calibrations_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    devices = {
        device: {"calibration": speed.calibration, "constants": dict(speed.constants)}
        for device, speed in sorted(speeds.items())
    }
    with replace_file(str(path)) as file:
        file.write(json.dumps({"format": _FORMAT, "devices": devices}, indent=2).encode() + b"\n")
