# SPDX-License-Identifier: BSD-3-Clause
"""`MemTracker`, by the name of torch.distributed._tools.mem_tracker."""

from tidegauge.trackers.common_utils import get_untyped_storages as get_untyped_storages
from tidegauge.trackers.mem_tracker import _PYTORCH_MIN_ALLOCATE as _PYTORCH_MIN_ALLOCATE
from tidegauge.trackers.mem_tracker import _TOTAL_KEY as _TOTAL_KEY
from tidegauge.trackers.mem_tracker import MemTracker as MemTracker
from tidegauge.trackers.mem_tracker import _get_mem_divisor as _get_mem_divisor
from tidegauge.trackers.mem_tracker import _LiveModMemStats as _LiveModMemStats
from tidegauge.trackers.mem_tracker import _MemRefType as _MemRefType
from tidegauge.trackers.mem_tracker import _ModMemStats as _ModMemStats
from tidegauge.trackers.mem_tracker import _ModState as _ModState
from tidegauge.trackers.mem_tracker import _print_snapshot as _print_snapshot
from tidegauge.trackers.mem_tracker import _print_snapshot_tabular as _print_snapshot_tabular
from tidegauge.trackers.mem_tracker import _print_state_snapshots as _print_state_snapshots
from tidegauge.trackers.mem_tracker import (
    _print_state_snapshots_tabular as _print_state_snapshots_tabular,
)
from tidegauge.trackers.mem_tracker import _RefType as _RefType
from tidegauge.trackers.mem_tracker import _rounding_fn as _rounding_fn
from tidegauge.trackers.mem_tracker import _State as _State
from tidegauge.trackers.mem_tracker import _UpdateType as _UpdateType
from tidegauge.trackers.mem_tracker import _WeakRefInfo as _WeakRefInfo
from tidegauge.trackers.mod_tracker import ModTracker as ModTracker
from tidegauge.trackers.module_stats import LiveStats as LiveStats
from tidegauge.trackers.module_stats import ModuleStatsDictionary as ModuleStatsDictionary
from tidegauge.trackers.module_stats import make_snapshot as make_snapshot
from tidegauge.trackers.printing import Snapshot as Snapshot
from tidegauge.trackers.recorder import Recorder as Recorder

__all__ = ["MemTracker"]
