# SPDX-License-Identifier: BSD-3-Clause
"""Memory snapshots in torch's format, without a device: hand-made and recorded ones."""

from __future__ import annotations

import gzip
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

MIB = 1 << 20
BASE = 0x7F00_0000_0000
REPO = Path(__file__).resolve().parents[3]

_ACTIONS = {
    "a": "alloc",
    "r": "free_requested",
    "c": "free_completed",
    "A": "segment_alloc",
    "F": "segment_free",
    "M": "segment_map",
    "U": "segment_unmap",
    "O": "oom",
    "X": "snapshot",
}


def event(action: str, addr: int, size: int, stream: int = 0, **more: Any) -> dict[str, Any]:
    return {"action": action, "addr": addr, "size": size, "stream": stream, "frames": [], **more}


def block(address: int, size: int, requested: int, state: str) -> dict[str, Any]:
    return {
        "address": address,
        "size": size,
        "requested_size": requested,
        "state": state,
        "frames": [],
    }


def segment(address: int, size: int, blocks: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    active = [b for b in blocks if b["state"] != "inactive"]
    return {
        "device": 0,
        "address": address,
        "total_size": size,
        "allocated_size": sum(b["size"] for b in active),
        "active_size": sum(b["size"] for b in active),
        "requested_size": sum(b["requested_size"] for b in active),
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": blocks,
        **more,
    }


def three_segments() -> dict[str, Any]:
    """30 and 50 MiB used one after the other, 30 cached, then 70 MiB that fit in neither."""
    first, second, third = BASE, BASE + 30 * MIB, BASE + 80 * MIB
    events = [
        event("segment_alloc", first, 30 * MIB),
        event("alloc", first, 30 * MIB - 700),
        event("free_requested", first, 30 * MIB - 700),
        event("free_completed", first, 30 * MIB - 700),
        event("segment_alloc", second, 50 * MIB),
        event("alloc", second, 50 * MIB),
        event("free_requested", second, 50 * MIB),
        event("free_completed", second, 50 * MIB),
        event("segment_alloc", third, 70 * MIB),
        event("alloc", third, 69 * MIB),
        event("snapshot", 0, 70 * MIB),
    ]
    return {
        "segments": [
            segment(first, 30 * MIB, [block(first, 30 * MIB, 0, "inactive")]),
            segment(second, 50 * MIB, [block(second, 50 * MIB, 0, "inactive")]),
            segment(third, 70 * MIB, [block(third, 70 * MIB, 69 * MIB, "active_allocated")]),
        ],
        "device_traces": [events],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "expandable_segments": False},
        "external_annotations": [],
    }


def deferred_frees() -> dict[str, Any]:
    """30 MiB three times; another stream uses the first two for a while after they are freed."""
    first, second = BASE, BASE + 30 * MIB
    events = [
        event("segment_alloc", first, 30 * MIB),
        event("alloc", first, 30 * MIB),
        event("free_requested", first, 30 * MIB),
        event("segment_alloc", second, 30 * MIB),
        event("alloc", second, 30 * MIB),
        event("free_requested", second, 30 * MIB),
        event("free_completed", first, 30 * MIB),
        event("free_completed", second, 30 * MIB),
        event("alloc", first, 30 * MIB),
    ]
    return {
        "segments": [
            segment(first, 30 * MIB, [block(first, 30 * MIB, 30 * MIB, "active_allocated")]),
            segment(second, 30 * MIB, [block(second, 30 * MIB, 0, "inactive")]),
        ],
        "device_traces": [events],
    }


def write(path: Path, snapshot: Any, protocol: int = pickle.DEFAULT_PROTOCOL) -> Path:
    path.write_bytes(pickle.dumps(snapshot, protocol=protocol))
    return path


def recorded_traces() -> list[Path]:
    """Skips the test if there are no recorded traces; fails it in CI."""
    default = REPO.parent / "shared" / "recorded-traces"
    folder = Path(os.environ.get("TIDEGAUGE_RECORDED_TRACES", default))
    traces = sorted(folder.glob("*.txt.gz"))
    if not traces:
        message = f"no recorded traces in {folder}; set TIDEGAUGE_RECORDED_TRACES to their folder"
        assert os.environ.get("CI") != "true", message
        pytest.skip(message)
    return traces


def snapshot_of_trace(path: Path) -> dict[str, Any]:
    """The snapshot from which a recorded trace was made, without its frames."""
    events: list[dict[str, Any]] = []
    segments: list[dict[str, Any]] = []
    for line in gzip.decompress(path.read_bytes()).decode().splitlines():
        kind, *fields = line.split()
        if kind in _ACTIONS:
            events.append(event(_ACTIONS[kind], *map(int, fields)))
        elif kind == "s":
            address, size, stream = map(int, fields[:3])
            segments.append(segment(address, size, [], stream=stream, segment_type=fields[3]))
        elif kind == "b":
            segments[-1]["blocks"].append(block(*map(int, fields[:3]), fields[3]))
    return {"segments": segments, "device_traces": [events]}
