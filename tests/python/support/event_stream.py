# SPDX-License-Identifier: BSD-3-Clause
"""Reads all events of a trace file as docs/trace-format.md describes, without tidegauge."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

KINDS = [
    *("", "born", "resized", "relabelled", "freed", "module enter", "module exit", "module mark"),
    *("module size", "optimizer step begin", "optimizer step end", "collective begin"),
    *("collective end", "step", "statistics reset", "iteration", "peak reset", "module gone"),
    *("claimed", "allocation failed"),
]
FIELDS = [
    *("time", "storage", "bytes", "module", "op", "role", "tensor", "phase", "since", "facts"),
    *("thread", "device", "size of", "state", "stream", "stack"),
]
DIFFERENCES = {"time", "storage", "bytes", "module"}
ONE_BYTE = {"role", "phase", "since", "facts", "size of", "state"}

Event = tuple[Any, ...]


class _Bytes:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def leb128(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def zigzag(self) -> int:
        value = self.leb128()
        return (value >> 1) ^ -(value & 1)


def _read_batch(data: bytes) -> Iterator[dict[str, Any]]:
    stream = _Bytes(data)
    last: dict[str, Any] = {"time": 0, "storage": 0, "module": 0, "thread": 0, "device": (0, 255)}
    while stream:
        event: dict[str, Any] = {"kind": KINDS[stream.byte()]}
        present = stream.leb128()
        for bit, field in enumerate(FIELDS):
            if not (present >> bit) & 1:
                continue
            if field in DIFFERENCES:
                event[field] = stream.zigzag() + (last[field] if field != "bytes" else 0)
            elif field == "device":
                event[field] = (stream.byte(), stream.byte())
            else:
                event[field] = stream.byte() if field in ONE_BYTE else stream.leb128()
        for field in last:
            if field in event:
                last[field] = event[field]
        event.setdefault("device", last["device"])
        yield event


META = 14
"""a type of device"""


def read_events(path: Path) -> list[Event]:
    """Without times and stacks; storages and modules are numbered in the order of appearance.
    Without the meta device, where DTensor and dynamo compute shapes once per process. Consecutive
    frees are sorted, because caches are emptied in the order of addresses."""
    with sqlite3.connect(path) as file:
        batches = file.execute("SELECT events FROM batches ORDER BY first_sequence").fetchall()
        ops = dict(file.execute("SELECT id, name FROM ops"))
        tensors = {row[0]: row[1:] for row in file.execute("SELECT id, dtype, shape FROM tensors")}
    numbers: dict[str, dict[int, int]] = {"storage": {}, "module": {}}
    result = []
    on_meta: set[int] = set()
    for (data,) in batches:
        for event in _read_batch(data):
            if event["kind"] == "born" and event["device"][0] == META:
                on_meta.add(event["storage"])
            if event.get("storage") in on_meta:
                continue
            for field, seen in numbers.items():
                if event.get(field):
                    event[field] = seen.setdefault(event[field], len(seen) + 1)
            event["op"] = ops.get(event.get("op", 0), "")
            event["tensor"] = tensors.get(event.get("tensor", 0), "")
            fields = [field for field in FIELDS if field not in ("time", "stack", "thread")]
            result.append((event["kind"], *((field, event.get(field, 0)) for field in fields)))
    return [
        event
        for kind, run in itertools.groupby(result, key=lambda event: event[0])
        for event in (sorted(run) if kind == "freed" else run)
    ]


def describe(event: Event | None) -> str:
    """Only the fields that are not 0."""
    if event is None:
        return "the end"
    return " ".join([event[0], *(f"{field}={value}" for field, value in event[1:] if value)])
