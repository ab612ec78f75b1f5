# SPDX-License-Identifier: BSD-3-Clause
"""Exports traces to other viewers and programs (docs/exports.md).

All functions take summaries from `read_summary`: of one trace, or of all ranks of one run::

    summary = tidegauge.read_summary("train.tide")
    with open("train.json", "wb") as file:
        to_perfetto([summary], file)
"""

from tidegauge.export.csv_tables import to_csv
from tidegauge.export.flamegraph import to_flamegraph
from tidegauge.export.json_tables import to_json
from tidegauge.export.memory_viz import to_memory_viz
from tidegauge.export.perfetto import to_perfetto
from tidegauge.export.tables import TABLES

__all__ = ["TABLES", "to_csv", "to_flamegraph", "to_json", "to_memory_viz", "to_perfetto"]
