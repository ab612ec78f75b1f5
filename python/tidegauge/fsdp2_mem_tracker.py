# SPDX-License-Identifier: BSD-3-Clause
"""`FSDPMemTracker`, by the name of torch.distributed._tools.fsdp2_mem_tracker."""

from tidegauge.trackers.fsdp2_mem_tracker import FSDPMemTracker as FSDPMemTracker
from tidegauge.trackers.fsdp2_mem_tracker import _FSDPModMemStats as _FSDPModMemStats
from tidegauge.trackers.fsdp2_mem_tracker import _FSDPModState as _FSDPModState
from tidegauge.trackers.fsdp2_mem_tracker import _FSDPRefType as _FSDPRefType
from tidegauge.trackers.fsdp2_mem_tracker import _FSDPState as _FSDPState
from tidegauge.trackers.fsdp2_mem_tracker import _LiveFSDPModMemStats as _LiveFSDPModMemStats
from tidegauge.trackers.mem_tracker import MemTracker as MemTracker
from tidegauge.trackers.mem_tracker import _RefType as _RefType
from tidegauge.trackers.mem_tracker import _State as _State
from tidegauge.trackers.module_stats import LiveStats as LiveStats
from tidegauge.trackers.printing import Snapshot as Snapshot
from tidegauge.trackers.recorder import Recorder as Recorder

__all__ = ["FSDPMemTracker"]
