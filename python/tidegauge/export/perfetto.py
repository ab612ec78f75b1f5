# SPDX-License-Identifier: BSD-3-Clause
"""JSON for Perfetto and chrome://tracing (src/export/perfetto.h)."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import BinaryIO

from tidegauge import _core
from tidegauge.export.clock import begin_ns
from tidegauge.report.ranks import sort_ranks
from tidegauge.report.summary import Summary


def to_perfetto(
    summaries: Sequence[Summary],
    file: BinaryIO,
    *,
    progress: Callable[[float], None] | None = None,
) -> None:
    """Writes counters of bytes, slices of module calls, and steps; each rank is a process.

    Raises ValueError for two traces of the same rank.
    """
    ordered = sort_ranks(summaries)
    sources = [
        (
            summary.path,
            summary.rank,
            f"rank {summary.rank}: {os.path.basename(summary.path)}",
            begin_ns(summary, ordered),
        )
        for summary in ordered
    ]
    _core.write_perfetto(sources, file.write, progress)
