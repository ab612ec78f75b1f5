# SPDX-License-Identifier: BSD-3-Clause
"""The requests to a simulated CUDA device, as a trace has them."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path

import tidegauge
from tidegauge.export import to_memory_viz


@dataclass(frozen=True)
class Row:
    """A request, or with a negative size a free. `what`: who asked, if that is known."""

    size: int
    stream: int
    what: str = ""
    is_of_op: bool = True  # not a storage that existed before


def read_requests(trace: Path) -> list[Row]:
    """In order. Streams are numbered in the order of their first use, from the default one, 0."""
    file = io.BytesIO()
    summary = tidegauge.read_summary(str(trace))
    to_memory_viz([summary], file, as_json=True, traced_device="cuda:0")
    rows: list[Row] = []
    live: dict[int, Row] = {}
    streams: dict[int, int] = {0: 0}
    for entry in max(json.loads(file.getvalue())["device_traces"], key=len):
        address = entry["addr"]
        if entry["action"] == "alloc":
            names = [f"{each['name']} {each['filename']}" for each in entry.get("frames", [])]
            is_of_op = bool(names) and not names[0].startswith("tensor")
            stream = streams.setdefault(entry["stream"], len(streams))
            rows.append(Row(entry["size"], stream, " < ".join(names[:2]), is_of_op))
            live[address] = rows[-1]
        elif entry["action"] == "free_requested" and address in live:
            born = live.pop(address)
            rows.append(Row(-born.size, born.stream, is_of_op=born.is_of_op))
    return rows
