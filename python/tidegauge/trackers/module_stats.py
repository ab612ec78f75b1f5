# SPDX-License-Identifier: BSD-3-Clause
"""Statistics of modules as dictionaries and lists that follow the core.

The core keeps them in its own form. They are converted when they are read, and again when they are
read after a change. Callers may keep both the dictionary of all modules and the statistics of one.
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
    """Bytes by device and category, in the order of the enum, from the rows of the core."""
    return {
        device: {**dict(zip(categories, sizes, strict=True)), TOTAL_KEY: sum(sizes)}
        for device, sizes in rows
    }


class LiveStats:
    """A mixin that makes the statistics of a module follow the core.

    Values that a caller writes into them stay until the core changes.
    """

    # Slots, so that `vars()` shows the statistics alone.
    __slots__ = ("__dict__", "_core", "_version", "_w_module")

    _categories: type[Enum]
    _states: type[Enum]

    mod_fqn: str
    local_peak: dict[torch.device, int]
    snapshots: dict[Any, list[Snapshot]]

    def follow(self, core: _C.MemTracker, module: nn.Module) -> None:
        self._version = -1
        self._w_module = weakref.ref(module)
        self._core: _C.MemTracker | None = core
        self._read_core()

    def unfollow(self) -> None:
        """Freezes the statistics as they are now."""
        self._read_core()
        self._core = None

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("_") or name == "__dict__":
            LiveStats._read_core(self)
        return object.__getattribute__(self, name)

    def __reduce__(self) -> Any:
        """A copy is plain: it does not follow the core."""
        plain = next(cls for cls in type(self).__mro__ if not issubclass(cls, LiveStats))
        return plain, (self.mod_fqn,), vars(self)

    def _read_core(self) -> None:
        core = getattr(self, "_core", None)
        if core is None or core.version == self._version:
            return
        self._version = core.version  # first: the lines below read attributes, which comes here
        module = self._w_module()
        if module is None:
            return
        stats = core.module_stats(module)
        if stats["snapshots"]:  # else an iteration has begun without calling this module yet
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

    The base class works on `data` alone, so `data` is where we check for changes of the core.
    """

    def __init__(self, core: _C.MemTracker, make_stats: Callable[[str], LiveStats]) -> None:
        self._core = core
        self._make_stats = make_stats
        self._version = -1
        super().__init__()
        self._remove = _make_removal(self)

    @property
    def data(self) -> dict[Any, LiveStats]:
        if self._core.version != self._version:
            self._read_core()
        return self._entries

    @data.setter
    def data(self, entries: dict[Any, LiveStats]) -> None:
        self._entries = entries

    def clear(self) -> None:
        """Drops all statistics, also in the core. Those that a caller holds stay as they are."""
        for stats in self._entries.values():
            stats.unfollow()
        self._core.reset_module_stats()
        self._entries = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> WeakIdKeyDictionary:
        """A plain dictionary that does not follow the core."""
        copy = WeakIdKeyDictionary()
        for module, stats in self.items():  # type: ignore[no-untyped-call]
            copy[module] = deepcopy(stats, memo)
        return copy

    def _read_core(self) -> None:
        self._version = self._core.version
        entries: dict[Any, LiveStats] = {}
        for module, fqn in self._core.modules():
            key = self.ref_type(module, self._remove)
            stats = self._entries.get(key)
            if stats is None:
                stats = self._make_stats(fqn)
                stats.follow(self._core, module)
            stats.mod_fqn = fqn
            entries[key] = stats
        self._entries = entries
        self._pending_removals = []


def _make_removal(dictionary: ModuleStatsDictionary) -> Callable[..., None]:
    """The callback for a module that dies, at any moment: it must not call the core."""
    w_dictionary = weakref.ref(dictionary)

    def remove(key: Any) -> None:
        if (self := w_dictionary()) is None:
            return
        if self._iterating:
            self._pending_removals.append(key)
        else:
            self._entries.pop(key, None)

    return remove
