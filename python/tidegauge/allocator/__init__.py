# SPDX-License-Identifier: BSD-3-Clause
"""Estimates the memory that a device reserves by replaying snapshots and traces on the CPU."""

from tidegauge.allocator.device_memory import DeviceMemory, Setting, replay_trace
from tidegauge.allocator.devices import DeviceModel, device_models, find_device, model_device
from tidegauge.allocator.replay import (
    DeviceReplay,
    Divergence,
    RunFigures,
    StepFigures,
    WhatIf,
    replay_snapshot,
)
from tidegauge.allocator.snapshot_file import MAX_FILE_BYTES
from tidegauge.allocator.verdict import Assumptions, Layer, Verdict, VerdictName, judge

__all__ = [
    "MAX_FILE_BYTES",
    "Assumptions",
    "DeviceMemory",
    "DeviceModel",
    "DeviceReplay",
    "Divergence",
    "Layer",
    "RunFigures",
    "Setting",
    "StepFigures",
    "Verdict",
    "VerdictName",
    "WhatIf",
    "device_models",
    "find_device",
    "judge",
    "model_device",
    "replay_snapshot",
    "replay_trace",
]
