# SPDX-License-Identifier: BSD-3-Clause
"""Statistics of modules as dictionaries and lists that follow the native tracker.

The native tracker (`_C.MemTracker`) keeps them in its own form. They are converted when they are
read, and again when they are read after a change. Callers may keep the dictionary of all modules
and the statistics of a single module.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from copy import deepcopy
from enum import Enum
from typing import Any

import torch
from torch import nn
from torch.utils.weak import WeakIdKeyDictionary

from tidegauge import _C
from tidegauge.trackers.printing import TOTAL_KEY, Snapshot

_SIZES = ("parameter_mem", "buffer_mem", "input_mem", "output_mem")


def make_snapshot(
    rows: Iterable[tuple[torch.device, tuple[int, ...]]], categories: type[Enum]
) -> Snapshot:
    """Bytes by device and category, in the order of the enum, from rows of the native tracker."""
    return {
        device: {**dict(zip(categories, sizes, strict=True)), TOTAL_KEY: sum(sizes)}
        for device, sizes in rows
    }


class LiveStats:
    """A mixin that makes the statistics of a module follow the native tracker.

    Values that a caller writes into them stay until the native tracker changes.
    """

    # Slots, so that `vars()` shows the statistics alone.
    __slots__ = ("__dict__", "_native", "_version", "_w_module")

    _categories: type[Enum]
    _states: type[Enum]

    mod_fqn: str
    local_peak: dict[torch.device, int]
    snapshots: dict[Any, list[Snapshot]]

    def follow(self, native: _C.MemTracker, module: nn.Module) -> None:
        self._version = -1
        self._w_module = weakref.ref(module)
        self._native: _C.MemTracker | None = native
        self._read_native()

    def unfollow(self) -> None:
        """Freezes the statistics as they are now."""
        self._read_native()
        self._native = None

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("_") or name == "__dict__":
            LiveStats._read_native(self)
        return object.__getattribute__(self, name)

    def __reduce__(self) -> Any:
        """A copy is plain: it does not follow the native tracker."""
        plain = next(cls for cls in type(self).__mro__ if not issubclass(cls, LiveStats))
        return plain, (self.mod_fqn,), vars(self)

    def _read_native(self) -> None:
        native = getattr(self, "_native", None)
        if native is None or native.version == self._version:
            return
        self._version = native.version  # first, because reading an attribute below calls this again
        module = self._w_module()
        if module is None:
            return
        stats = native.module_stats(module)
        if stats["snapshots"]:  # empty: an iteration has begun and has not called this module yet
            self._write(stats)

    def _write(self, stats: dict[str, Any]) -> None:
        attributes = vars(self)
        for name in _SIZES:
            attributes.pop(name, None)
        attributes.update(stats["sizes"])
        self.local_peak.clear()
        self.local_peak.update(stats["local_peak"])
        # The same list objects, as callers may hold them.
        lists = dict(self.snapshots)
        self.snapshots.clear()
        for text, calls in stats["snapshots"]:
            state = self._states(text)
            snapshots = self.snapshots[state] = lists.get(state, [])
            snapshots[:] = [make_snapshot(rows, self._categories) for rows in calls]


class ModuleStatsDictionary(WeakIdKeyDictionary):
    """The living modules with their statistics, in the order of their first call.

    The base class works on `data` alone, so `data` checks whether the native tracker has changed.
    """

    def __init__(self, native: _C.MemTracker, make_stats: Callable[[str], LiveStats]) -> None:
        self._native = native
        self._make_stats = make_stats
        self._version = -1
        super().__init__()
        self._remove = _make_removal(self)

    @property
    def data(self) -> dict[Any, LiveStats]:
        if self._native.version != self._version:
            self._read_native()
        return self._entries

    @data.setter
    def data(self, entries: dict[Any, LiveStats]) -> None:
        self._entries = entries

    def clear(self) -> None:
        """Drops all statistics, also in the native tracker. Statistics that a caller holds stay."""
        for stats in self._entries.values():
            stats.unfollow()
        self._native.reset_module_stats()
        self._entries = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> WeakIdKeyDictionary:
        """A plain dictionary that does not follow the native tracker."""
        copy = WeakIdKeyDictionary()
        for module, stats in self.items():  # type: ignore[no-untyped-call]
            copy[module] = deepcopy(stats, memo)
        return copy

    def _read_native(self) -> None:
        self._version = self._native.version
        entries: dict[Any, LiveStats] = {}
        for module, fqn in self._native.modules():
            key = self.ref_type(module, self._remove)
            stats = self._entries.get(key)
            if stats is None:
                stats = self._make_stats(fqn)
                stats.follow(self._native, module)
            stats.mod_fqn = fqn
            entries[key] = stats
        self._entries = entries
        self._pending_removals = []


def _make_removal(dictionary: ModuleStatsDictionary) -> Callable[..., None]:
    """The callback for a destroyed module. It may run at any time, so it must not call C++."""
    w_dictionary = weakref.ref(dictionary)

    def remove(key: Any) -> None:
        if (self := w_dictionary()) is None:
            return
        if self._iterating:
            self._pending_removals.append(key)
        else:
            self._entries.pop(key, None)

    return remove
