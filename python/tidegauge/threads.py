# SPDX-License-Identifier: BSD-3-Clause
"""`attach_thread` and `detach_thread`; their home is `tidegauge.trackers.threads`."""

from tidegauge.trackers.threads import attach_thread as attach_thread
from tidegauge.trackers.threads import detach_thread as detach_thread

__all__ = ["attach_thread", "detach_thread"]
