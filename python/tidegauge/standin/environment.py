# SPDX-License-Identifier: BSD-3-Clause
"""The environment of a process that uses the stand-in for CUDA.

A process never gets the stand-in by accident: it is loaded by LD_PRELOAD, which only this module
writes, for child processes that we start, together with the variable that marks them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from glob import glob
from typing import Literal

from tidegauge import _core
from tidegauge.allocator import Assumptions, DeviceModel
from tidegauge.standin.build import Standin

MARK = "TIDEGAUGE_STANDIN"
Events = Literal["quick", "slow"]


def is_active() -> bool:
    """True in a process that has the stand-in."""
    return MARK in os.environ


def find_gpu() -> str | None:
    """A real GPU of this machine; None if there is none."""
    found = sorted(glob("/dev/nvidia[0-9]*") + glob("/dev/dxg"))
    return found[0] if found else None


def resolve_assumptions(given: Assumptions | None, device: DeviceModel, ranks: int) -> Assumptions:
    """With every member set, as `estimate` does."""
    row = (given or Assumptions()).row
    return Assumptions(*_core.resolve_assumptions(row, device.compute, ranks))


def make_environment(
    standin: Standin,
    device: DeviceModel,
    gpus: int,
    ranks: int = 1,
    *,
    assumptions: Assumptions | None = None,
    events: Events = "quick",
    base: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The variables of a child process that has `gpus` devices of this model and no others.

    `ranks`: of the whole job. `events`: when recorded events are done, at once, or when the
    program waits for them.
    """
    assumed = resolve_assumptions(assumptions, device, ranks)
    settings = {
        "devices": gpus,
        "name": (device.name or "the device").replace(" ", "_"),
        "memory": device.memory_bytes,
        "context": assumed.context_bytes,
        "communication": assumed.communication_bytes,
        "major": device.compute,
        "minor": device.compute_minor,
        "multiprocessors": device.multiprocessors,
        "events": events,
    }
    environment = dict(os.environ if base is None else base)
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    preload = [environment.get("LD_PRELOAD", ""), *map(str, standin.libraries)]
    environment["LD_PRELOAD"] = ":".join(filter(None, preload))
    environment[MARK] = " ".join(f"{key}={value}" for key, value in settings.items())
    environment["TRITON_LIBCUDA_PATH"] = str(standin.folder)
    return environment
