# SPDX-License-Identifier: BSD-3-Clause
"""A memory snapshot for torch's memory_viz (src/export/memory_viz.h)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import BinaryIO

from tidegauge import _core
from tidegauge.export.clock import epoch_shift_ns
from tidegauge.report.ranks import sort_ranks
from tidegauge.report.summary import Summary


def to_memory_viz(
    summaries: Sequence[Summary],
    file: BinaryIO,
    *,
    as_json: bool = False,
    alloc_conf: str = "",
    traced_device: str | None = None,
    progress: Callable[[float], None] | None = None,
) -> None:
    """Writes a file in the format of `torch.cuda.memory._dump_snapshot`, as pickle or as JSON.

    A simulated allocator with the settings `alloc_conf` places the storages of one device. With
    several ranks, the device number is the rank. `traced_device`: see `replay_trace`.

    Raises ValueError for settings that torch rejects, for an unused device, and for two traces of
    the same rank.
    """
    ordered = sort_ranks(summaries)
    sources = []
    for summary in ordered:
        peaks = {peak.device: peak.total_bytes for peak in summary.peaks}
        device = _core.choose_device(list(peaks.items()), traced_device)
        number = summary.rank if len(ordered) > 1 else int(device.partition(":")[2] or 0)
        times = summary.started_ns, epoch_shift_ns(summary)
        sources.append((summary.path, device, number, *times))
    _core.write_memory_viz(sources, alloc_conf, as_json, file.write, progress)
