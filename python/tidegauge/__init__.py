# SPDX-License-Identifier: BSD-3-Clause
"""Where every byte of a PyTorch training run is, which module owns the peak, and what to change."""

from tidegauge._build_info import __version__, cmake_prefix_path
from tidegauge._torch_version import check_torch_version

check_torch_version()

from tidegauge._C import FormatError, IoError, attach_thread, detach_thread  # noqa: E402
from tidegauge.fsdp2_mem_tracker import FSDPMemTracker  # noqa: E402
from tidegauge.mem_tracker import MemTracker  # noqa: E402
from tidegauge.mod_tracker import ModTracker  # noqa: E402
from tidegauge.recorder import Recorder  # noqa: E402
from tidegauge.simulation import Simulation, simulate  # noqa: E402

__all__ = [
    "FSDPMemTracker",
    "FormatError",
    "IoError",
    "MemTracker",
    "ModTracker",
    "Recorder",
    "Simulation",
    "__version__",
    "attach_thread",
    "cmake_prefix_path",
    "detach_thread",
    "simulate",
]
