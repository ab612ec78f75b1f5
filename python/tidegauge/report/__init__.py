# SPDX-License-Identifier: BSD-3-Clause
"""Reads trace files into values, `read_summary("run.tide")`, and renders them."""

from tidegauge.report.summary import (
    Gap,
    Health,
    ModuleBytes,
    Peak,
    StepPeak,
    Summary,
    TensorGroup,
    UnitBytes,
    read_moment,
    read_summary,
)

__all__ = [
    "Gap",
    "Health",
    "ModuleBytes",
    "Peak",
    "StepPeak",
    "Summary",
    "TensorGroup",
    "UnitBytes",
    "read_moment",
    "read_summary",
]
