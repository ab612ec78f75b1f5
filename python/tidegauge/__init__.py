# SPDX-License-Identifier: BSD-3-Clause
"""Shows what uses the memory of a PyTorch training run, which module causes the peak, and what
to change.

The names below are loaded on first use: importing torch takes seconds. `read_summary`, `allocator`,
`export` and `report` need no torch at all; other names raise TorchError without it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tidegauge._build_info import __version__, cmake_prefix_path
from tidegauge.errors import FormatError, IoError, TorchError

if TYPE_CHECKING:
    from tidegauge.estimation import Estimate, SweepResult, estimate
    from tidegauge.estimation import sweep_target as sweep
    from tidegauge.report import read_summary
    from tidegauge.simulation import Simulation, simulate
    from tidegauge.trackers.fsdp2_mem_tracker import FSDPMemTracker
    from tidegauge.trackers.mem_tracker import MemTracker
    from tidegauge.trackers.mod_tracker import ModTracker
    from tidegauge.trackers.recorder import Recorder
    from tidegauge.trackers.threads import attach_thread, detach_thread
    from tidegauge.tracking import TrackedRun, track

__all__ = [
    "Estimate",
    "FSDPMemTracker",
    "FormatError",
    "IoError",
    "MemTracker",
    "ModTracker",
    "Recorder",
    "Simulation",
    "SweepResult",
    "TorchError",
    "TrackedRun",
    "__version__",
    "attach_thread",
    "cmake_prefix_path",
    "detach_thread",
    "estimate",
    "read_summary",
    "simulate",
    "sweep",
    "track",
]

_HOMES = {
    "Estimate": "estimation",
    "FSDPMemTracker": "fsdp2_mem_tracker",
    "MemTracker": "mem_tracker",
    "ModTracker": "mod_tracker",
    "Recorder": "recorder",
    "Simulation": "simulation",
    "SweepResult": "estimation",
    "TrackedRun": "tracking",
    "attach_thread": "threads",
    "detach_thread": "threads",
    "estimate": "estimation",
    "read_summary": "report",
    "simulate": "simulation",
    "sweep": "estimation",
    "track": "tracking",
}
_NAMES = {"sweep": "sweep_target"}  # where it has another name: estimation has a module `sweep`
_MODULES = ("_C", "allocator", "callbacks", "export", "plan", "report", *_HOMES.values())


def __getattr__(name: str) -> Any:
    if name == "_C":
        from tidegauge._torch.compat import load_extension

        return load_extension()
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(__getattr__(_HOMES[name]), _NAMES.get(name, name))
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Only what is public."""
    return sorted({*__all__, "allocator", "callbacks", "export", "plan", "report"})
