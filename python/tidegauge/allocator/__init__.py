# SPDX-License-Identifier: BSD-3-Clause
"""What a device reserves: snapshots of torch's caching allocator, replayed without the device."""

from tidegauge.allocator.replay import (
    DeviceReplay,
    Divergence,
    RunFigures,
    WhatIf,
    replay_snapshot,
)
from tidegauge.allocator.snapshot_file import MAX_FILE_BYTES

__all__ = [
    "MAX_FILE_BYTES",
    "DeviceReplay",
    "Divergence",
    "RunFigures",
    "WhatIf",
    "replay_snapshot",
]
