# SPDX-License-Identifier: BSD-3-Clause
"""Reads files of `torch.cuda.memory._dump_snapshot`.

The files are pickles and may be hostile. Also reads the same data as JSON, which torch's viewer
accepts too.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from os import PathLike, fspath
from typing import Any

from tidegauge._util.files import read_file
from tidegauge._util.plain_pickle import load_plain_pickle
from tidegauge.errors import FormatError

#: Larger files are refused: what they unpack to would not fit into the memory of most machines.
MAX_FILE_BYTES = 2 << 30

_MOST_DEVICES = 128  # torch numbers them with 7 bits

# In the order of TraceAction in C++. Actions that later versions of torch add do not change blocks
# or segments, so they are skipped.
_ACTIONS = {
    name: code
    for code, name in enumerate(
        (
            "alloc",
            "free_requested",
            "free_completed",
            "segment_alloc",
            "segment_free",
            "segment_map",
            "segment_unmap",
            "snapshot",
            "oom",
        )
    )
}
# In the order of BlockUse. torch's documentation says "awaiting", but torch writes "pending".
_USES = {
    "inactive": 0,
    "active_allocated": 1,
    "active_pending_free": 2,
    "active_awaiting_free": 2,
}


@dataclass
class DeviceRecord:
    """One device of a snapshot, as the tables that `_core.AllocatorTrace` reads."""

    events: array[int] = field(default_factory=lambda: array("q"))
    segments: array[int] = field(default_factory=lambda: array("q"))
    blocks: array[int] = field(default_factory=lambda: array("q"))
    event_count: int = 0
    has_pool_ids: bool = False  # newer versions of torch name the pool in each event


@dataclass
class SnapshotFile:
    """All devices with memory or events, by number, and the settings if the file has them."""

    devices: dict[int, DeviceRecord]
    settings: str


def read_snapshot(
    path: str | PathLike[str], *, max_file_bytes: int = MAX_FILE_BYTES
) -> SnapshotFile:
    """Reads the snapshot in `path`. Raises FormatError if it is not a valid one."""
    hint = "record fewer events (max_entries of torch.cuda.memory._record_memory_history)"
    data = read_file(path, max_file_bytes, hint)
    try:
        is_json = data.lstrip()[:1] in (b"{", b"[")  # no pickle begins like this
        return _Reader(len(data)).read(_load_json(data) if is_json else load_plain_pickle(data))
    except FormatError as error:
        raise FormatError(f"{fspath(path)}: {error}.") from None


def _load_json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except MemoryError:
        raise FormatError("it needs more memory than this machine has") from None
    except (ValueError, RecursionError) as error:
        text = " ".join(str(error).split())
        raise FormatError(
            f"not a memory snapshot, or damaged ({text[:100]}); "
            "expected a file from torch.cuda.memory._dump_snapshot"
        ) from None


class _Reader:
    """Turns the unpickled objects into tables; its errors name the place of an invalid value."""

    def __init__(self, file_bytes: int) -> None:
        # A pickle can repeat a list by reference, so a small file can contain any number of
        # entries. In a valid file, every entry takes more than one byte.
        self._entries_left = file_bytes

    def read(self, snapshot: Any) -> SnapshotFile:
        if isinstance(snapshot, list):  # torch.cuda.memory_snapshot(), pickled by hand
            snapshot = {"segments": snapshot}
        if not isinstance(snapshot, dict) or "segments" not in snapshot:
            raise FormatError(
                f"expected a dictionary with 'segments', found {_describe(snapshot)}; "
                "write the file with torch.cuda.memory._dump_snapshot"
            )
        devices: dict[int, DeviceRecord] = {}
        segments = [
            (self._int(segment, "address", where), where, segment)
            for where, segment in self._dicts(snapshot["segments"], "segments")
        ]
        for _, where, segment in sorted(segments, key=lambda item: item[0]):
            device = self._int(segment, "device", where, 0)
            if not 0 <= device < _MOST_DEVICES:
                raise FormatError(
                    f"the device of {where} is not a number from 0 to {_MOST_DEVICES - 1}"
                )
            self._add_segment(devices.setdefault(device, DeviceRecord()), segment, where)
        traces = self._list(snapshot.get("device_traces", []), "device_traces")
        if len(traces) > _MOST_DEVICES:
            raise FormatError(
                f"device_traces has {len(traces):,} devices, expected at most {_MOST_DEVICES}"
            )
        for device, trace in enumerate(traces):
            where = f"device_traces[{device}]"
            events = self._list(trace, where)
            if events or device in devices:
                record = devices.setdefault(device, DeviceRecord())
                self._add_events(record, events, where)
        return SnapshotFile(dict(sorted(devices.items())), _read_settings(snapshot))

    def _add_segment(self, record: DeviceRecord, segment: dict[Any, Any], where: str) -> None:
        address = self._int(segment, "address", where)
        kind = segment.get("segment_type", "large")
        if kind not in ("small", "large"):
            raise FormatError(
                f"{where} has the type {_describe(kind)}, expected 'small' or 'large'"
            )
        blocks = list(self._dicts(segment.get("blocks", []), f"{where}.blocks"))
        self._append(
            record.segments,
            where,
            address,
            self._int(segment, "total_size", where),
            self._int(segment, "stream", where, 0),
            *self._pool(segment.get("segment_pool_id"), where),
            int(kind == "small"),
            int(bool(segment.get("is_expandable", False))),
            len(blocks),
        )
        for place, block in blocks:
            state = block.get("state")
            use = _USES.get(state) if isinstance(state, str) else None
            if use is None:
                raise FormatError(f"{place} has the unknown state {_describe(state)}")
            size = self._int(block, "size", place)
            # Old versions of torch do not write the addresses of blocks.
            start = self._int(block, "address", place, address)
            requested = 0 if use == 0 else self._requested(block, place, size)
            self._append(record.blocks, place, start, size, requested, use)
            address = start + size

    def _requested(self, block: dict[Any, Any], where: str, size: int) -> int:
        history = block.get("history")
        if "requested_size" not in block and isinstance(history, list) and history:
            last = history[-1]
            if isinstance(last, dict):
                return self._int(last, "real_size", f"{where}.history", size)
        return self._int(block, "requested_size", where, size)

    def _add_events(self, record: DeviceRecord, events: list[Any], where: str) -> None:
        for place, event in self._dicts(events, where):
            action = event.get("action")
            if not isinstance(action, str):
                raise FormatError(f"{place} has the action {_describe(action)}, expected a string")
            code = _ACTIONS.get(action)
            if code is None:
                continue
            record.event_count += 1
            record.has_pool_ids |= "pool_id" in event
            self._append(
                record.events,
                place,
                code,
                self._int(event, "addr", place, None if code < 7 else 0),
                self._int(event, "size", place, None if code < 7 else 0),
                self._int(event, "stream", place, 0),
                *self._pool(event.get("pool_id"), place),
            )

    def _append(self, table: array[int], where: str, *row: int) -> None:
        try:
            table.extend(row)
        except OverflowError:
            raise FormatError(f"{where} has a number that exceeds 64 bits") from None

    def _pool(self, value: Any, where: str) -> tuple[int, int]:
        if value is None:
            return 0, 0
        if (
            isinstance(value, tuple | list)
            and len(value) == 2
            and all(type(part) is int for part in value)
        ):
            return value[0], value[1]
        raise FormatError(f"{where} has the pool {_describe(value)}, expected two numbers")

    def _int(self, entry: dict[Any, Any], key: str, where: str, default: int | None = None) -> int:
        value = entry.get(key, default)
        if type(value) is not int:
            found = "is missing" if value is None else f"is {_describe(value)}"
            raise FormatError(f"'{key}' of {where} {found}, expected an integer")
        return value

    def _list(self, value: Any, where: str) -> list[Any]:
        if not isinstance(value, list):
            raise FormatError(f"{where} is {_describe(value)}, expected a list")
        self._entries_left -= len(value)
        if self._entries_left < 0:
            raise FormatError(
                "it announces more entries than it has bytes; it is damaged or hostile"
            )
        return value

    def _dicts(self, value: Any, where: str) -> Iterator[tuple[str, dict[Any, Any]]]:
        for index, entry in enumerate(self._list(value, where)):
            place = f"{where}[{index}]"
            if not isinstance(entry, dict):
                raise FormatError(f"{place} is {_describe(entry)}, expected a dictionary")
            yield place, entry


def _read_settings(snapshot: dict[Any, Any]) -> str:
    """In the form of PYTORCH_CUDA_ALLOC_CONF. Old versions of torch do not save their settings."""
    settings = snapshot.get("allocator_settings")
    if not isinstance(settings, dict):
        return ""
    text = settings.get("PYTORCH_CUDA_ALLOC_CONF", "")
    text = text.strip().rstrip(",") if isinstance(text, str) else ""
    # torch's Python API can enable them without changing the text.
    if settings.get("expandable_segments") is True and "expandable_segments" not in text:
        text = ",".join(filter(None, (text, "expandable_segments:True")))
    return text


def _describe(value: Any) -> str:
    """A short description: a hostile file can contain any value."""
    if isinstance(value, str):
        return repr(value[:40])
    if value is None or isinstance(value, bool):
        return str(value)
    return f"of type {type(value).__name__}"
