# SPDX-License-Identifier: BSD-3-Clause
"""`Recorder`; its home is `tidegauge.trackers.recorder`."""

from tidegauge.trackers.recorder import Recorder as Recorder

__all__ = ["Recorder"]
