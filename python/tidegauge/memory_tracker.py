# SPDX-License-Identifier: BSD-3-Clause
"""`MemoryTracker`, by the name of torch.distributed._tools.memory_tracker."""

from tidegauge.trackers.memory_tracker import BYTES_PER_MB as BYTES_PER_MB
from tidegauge.trackers.memory_tracker import MemoryProfileDispatchMode as MemoryProfileDispatchMode
from tidegauge.trackers.memory_tracker import MemoryTracker as MemoryTracker
