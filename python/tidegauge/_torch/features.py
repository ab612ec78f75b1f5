# SPDX-License-Identifier: BSD-3-Clause
"""Lists features that are off because torch's internals have changed."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from tidegauge._torch.memory_patches import FOR_MEMORY
from tidegauge._torch.module_patches import FOR_MODULES
from tidegauge._torch.op_patches import FOR_OPS, FOR_THREADS


def _check_trackers() -> None:
    for each in (FOR_MODULES, FOR_THREADS, FOR_OPS, FOR_MEMORY):
        each.check("MemTracker")


# The functions below import parts of torch that are slow to load.


def _check_fsdp() -> None:
    import_module("tidegauge._torch.fsdp_patches")


def _check_dtensor() -> None:
    import_module("tidegauge._torch.dtensor_patches")


def _check_simulation() -> None:
    import_module("tidegauge._torch.simulation_patches").installation()
    import_module("tidegauge._torch.pipeline_patches").installation()


def _check_claimed_cuda() -> None:
    if (reason := import_module("tidegauge._torch.claimed_cuda").find_obstacle()) is not None:
        raise NotImplementedError(f"simulate(device='cuda') does not work here: {reason}")


_CHECKS: dict[str, Callable[[], None]] = {
    "trackers": _check_trackers,
    "FSDP2 units": _check_fsdp,
    "DTensor": _check_dtensor,
    "simulate": _check_simulation,
    "simulate(device='cuda')": _check_claimed_cuda,
}


def missing_features() -> dict[str, str]:
    """The features that do not work here, each with a sentence that says why."""
    missing = {}
    for feature, check in _CHECKS.items():
        try:
            check()
        except (NotImplementedError, ImportError) as error:
            missing[feature] = str(error)
    return missing
