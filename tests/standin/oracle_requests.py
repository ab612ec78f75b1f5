# SPDX-License-Identifier: BSD-3-Clause
"""The requests to torch's CUDA allocator, with the ops that made them."""

from __future__ import annotations

import re
from typing import Any

import torch

_OP = re.compile(r"at::_ops::(\w+)::(?:call|redispatch)\(")
_KERNEL = re.compile(r"(at::native::|at::cuda::|at::\(anonymous|pytorch_flash::|at::_\w+_cuda)")
_MOST_ENTRIES = 10_000_000


def start() -> None:
    torch.cuda.memory._record_memory_history(
        "all", context="alloc", stacks="all", max_entries=_MOST_ENTRIES, clear_history=True
    )


def read() -> list[dict[str, Any]]:
    """Requests and frees in order: size, stream, and who asked, the innermost op first. `is_new`:
    not a free of memory that was requested before `start`.
    """
    rows: list[dict[str, Any]] = []
    live: dict[int, int] = {}
    streams: dict[int, int] = {0: 0}
    for entry in torch.cuda.memory._snapshot()["device_traces"][0]:
        address, size, is_new = entry.get("addr"), entry["size"], True
        if entry["action"] == "alloc":
            live[address] = size
        elif entry["action"] == "free_requested":
            is_new = address in live
            size = -live.pop(address, size)
        else:
            continue
        stream = streams.setdefault(entry["stream"], len(streams))
        row = {"size": size, "stream": stream, "is_new": is_new}
        if size > 0:
            row |= _describe(entry.get("frames", []))
        rows.append(row)
    return rows


def _describe(frames: list[dict[str, Any]]) -> dict[str, Any]:
    ops: list[str] = []
    kernels: list[str] = []
    for frame in frames:
        name = frame["name"]
        found = _OP.search(name)
        if found and (not ops or ops[-1] != found[1]):
            ops.append(found[1])
        elif not found and _KERNEL.search(name) and len(kernels) < 6:
            kernels.append(name.replace("(anonymous namespace)::", "").partition("(")[0])
    lines = [
        f"{frame['filename'].rpartition('/')[2]}:{frame['line']} {frame['name']}"
        for frame in frames
        if frame["filename"].endswith(".py")
    ]
    return {"ops": ops, "kernels": kernels, "line": lines[0] if lines else ""}
