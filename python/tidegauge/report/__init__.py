# SPDX-License-Identifier: BSD-3-Clause
"""What a trace file says, as values: `read_summary("run.tide")`; and those put into words."""

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
