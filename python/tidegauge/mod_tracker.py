# SPDX-License-Identifier: BSD-3-Clause
"""`ModTracker`, by the name of torch.distributed._tools.mod_tracker."""

from tidegauge.trackers.mod_tracker import Hook as Hook
from tidegauge.trackers.mod_tracker import ModTracker as ModTracker
from tidegauge.trackers.mod_tracker import _is_in_compiled_module as _is_in_compiled_module

__all__ = ["ModTracker"]
