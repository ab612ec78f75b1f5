# SPDX-License-Identifier: BSD-3-Clause
"""MemoryTracker: the memory after each operator; a drop-in for torch.distributed._tools."""

from __future__ import annotations

import os
import pickle
from collections import defaultdict
from collections.abc import Callable
from importlib import import_module
from operator import itemgetter
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

from tidegauge import _C
from tidegauge._torch.entering import Entering, EnteringMode
from tidegauge._util.files import read_file
from tidegauge._util.plain_pickle import load_plain_pickle
from tidegauge.errors import FormatError
from tidegauge.trackers.mem_tracker import MemTracker
from tidegauge.trackers.mod_tracker import ModTracker

BYTES_PER_MB = 1024 * 1024.0
_LARGEST_FILE = 4 << 30

# Autograd's own, and lookups of the device of a fake tensor.
_UNRECORDED = (torch.ops.aten.detach.default, torch.ops.prim.device.default)

Figures = tuple[int, int, int]  # bytes that are allocated, active and reserved
Series = dict[int, tuple[str, float]]


class MemoryProfileDispatchMode(EnteringMode):
    """Tells a `MemoryTracker` about each operator that has run."""

    def __init__(self, memory_tracker: MemoryTracker) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.memory_tracker = memory_tracker

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func not in _UNRECORDED:
            self.memory_tracker._record(func.__name__)
        return result


class MemoryTracker:
    """Records the device's memory after each operator, in MB of 2^20 bytes.

    ::

        tracker = MemoryTracker()
        tracker.start_monitor(model)
        model(x).sum().backward()
        tracker.stop()
        tracker.summary()

    `memories_allocated`, `memories_active` and `memories_reserved` are {number of the operator:
    (its name, MB)}. A name is that of the innermost running module, "forward" or "backward", the
    operator, and a count. Figures of a model on a GPU are those of its allocator. For a model on
    the CPU, of fake or of simulated tensors all three are the bytes of the live tensors on its
    device.

    It uses a dispatch mode, which makes backward accumulate gradients out of place; `MemTracker`
    does not.
    """

    def __init__(self) -> None:
        self.memories_allocated: Series = {}
        self.memories_active: Series = {}
        self.memories_reserved: Series = {}
        self._markers: dict[str, int] = {}
        self._operator_names: dict[str, int] = defaultdict(int)
        self._op_index = 0
        self._num_alloc_retries = 0
        self._monitor: _Monitor | None = None

    def start_monitor(self, root_module: nn.Module) -> None:
        """Begins anew; the model is not changed. Raises AssertionError if it is monitoring."""
        if self._is_monitoring():
            raise AssertionError("start_monitor was called twice; call `stop` in between")
        for record in (
            self.memories_allocated,
            self.memories_active,
            self.memories_reserved,
            self._markers,
            self._operator_names,
        ):
            record.clear()
        self._op_index = self._num_alloc_retries = 0
        self._monitor = _Monitor(self, root_module)
        self._monitor.__enter__()

    def stop(self) -> None:
        """Raises AssertionError if it is not monitoring."""
        if self._monitor is None or not self._is_monitoring():
            raise AssertionError("stop was called without `start_monitor`")
        self._num_alloc_retries = self._monitor.count_retries()
        self._monitor.__exit__()
        self._monitor = None

    def summary(self, top: int = 20) -> None:
        """Prints the operators after which the allocated memory had grown most."""
        growth: dict[str, float] = {}
        before = self.memories_allocated[0][1] if self._op_index else 0.0
        for i in range(1, self._op_index):
            name, after = self.memories_allocated[i]
            growth[name] = after - before
            before = after
        largest = sorted(growth.items(), key=itemgetter(1), reverse=True)[:top]
        print("------------------------------------------------")
        print(f"The number of alloc retries are: {self._num_alloc_retries}")
        print(f"Top {top} ops that generates memory are:")
        for name, size in largest:
            print(f"{name}: {size}MB")
        print("------------------------------------------------")

    def show_traces(self, path: str = "") -> None:
        """Plots the figures over the operators with matplotlib; of the file at `path`, if given."""
        try:
            plot = import_module("matplotlib.pyplot")
        except ImportError as error:
            raise ImportError("plots need matplotlib: run `pip install matplotlib`") from error
        if path:
            self.load(path)
        lines = {
            "allocated_memory": self.memories_allocated,
            "active_memory": self.memories_active,
            "reserved_memory": self.memories_reserved,
        }
        self._plot(plot, lines)
        for label, series in lines.items():  # alone, because reserved memory may be far larger
            self._plot(plot, {label: series})

    def _plot(self, plot: Any, lines: dict[str, Series]) -> None:
        heights = {label: [size for _, size in line.values()] for label, line in lines.items()}
        sizes = [size for height in heights.values() for size in height] or [0.0]
        plot.figure()
        for label, height in heights.items():
            plot.plot(range(len(height)), height, label=label)
        plot.xlabel("# Operator Calls")
        plot.ylabel("Memory (MB)")
        for name, place in self._markers.items():
            colour = "r" if name == "fw_bw_boundary" else "k"
            plot.plot([place, place], [min(sizes), max(sizes)], colour, lw=2, label=name)
        plot.legend()

    def save_stats(self, path: str | os.PathLike[str]) -> None:
        """Writes what was recorded, for `load` and for upstream's class."""
        stats = {
            "memories_allocated": self.memories_allocated,
            "memories_active": self.memories_active,
            "memories_reserved": self.memories_reserved,
            "markers": self._markers,
            "num_alloc_retries": self._num_alloc_retries,
            "op_index": self._op_index,
        }
        with open(path, "wb") as file:
            pickle.dump(stats, file, pickle.HIGHEST_PROTOCOL)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Reads a file of `save_stats`, ours or upstream's, without running code from it.

        Raises FormatError, and leaves this object as it was, if it is another file.
        """
        data = read_file(path, _LARGEST_FILE)
        try:
            stats = load_plain_pickle(data, may_have_defaultdicts=True)
            series = [
                _read_series(stats[f"memories_{name}"])
                for name in ("allocated", "active", "reserved")
            ]
            markers = {str(name): _read_count(place) for name, place in stats["markers"].items()}
            retries = _read_count(stats["num_alloc_retries"])
            count = _read_count(stats.get("op_index", len(series[0])))
            if any(len(each) != count or set(each) != set(range(count)) for each in series):
                raise ValueError("operators are missing")
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise FormatError(
                f"{os.fspath(path)} is not a file that `save_stats` wrote ({str(error)[:200]})"
            ) from None
        self.memories_allocated, self.memories_active, self.memories_reserved = series
        self._markers, self._num_alloc_retries, self._op_index = markers, retries, count

    def _is_monitoring(self) -> bool:
        return self._monitor is not None and self._monitor._depth > 0

    def _record(self, op: str) -> None:
        if self._monitor is None:
            return
        name = f"{self._monitor.find_place()}.{op}_{self._operator_names[op]}"
        self._operator_names[op] += 1
        allocated, active, reserved = self._monitor.read()
        self.memories_allocated[self._op_index] = (name, allocated / BYTES_PER_MB)
        self.memories_active[self._op_index] = (name, active / BYTES_PER_MB)
        self.memories_reserved[self._op_index] = (name, reserved / BYTES_PER_MB)
        self._op_index += 1

    def _add_marker(self, marker_name: str) -> None:
        self._markers[marker_name] = self._op_index


def _read_series(values: dict[int, Any]) -> Series:
    series: Series = {}
    for place, (name, size) in values.items():
        if not isinstance(name, str) or not isinstance(size, float | int):
            raise ValueError("an operator has no name or no size")
        series[_read_count(place)] = name, float(size)
    return series


def _read_count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise ValueError("a number is invalid")
    return value


class _Monitor(Entering):
    """Everything that is installed between `start_monitor` and `stop`."""

    def __init__(self, owner: MemoryTracker, root: nn.Module) -> None:
        self._owner = owner
        self._root = root
        self._modules = ModTracker()
        self._modules.register_user_hooks(
            pre_fw_hook=self._marks("fw_start"), post_fw_hook=self._marks("fw_bw_boundary")
        )
        self._mode = MemoryProfileDispatchMode(owner)
        tensor = next((each for each in (*root.parameters(), *root.buffers())), torch.empty(0))
        self._device = tensor.device
        self._tracker: MemTracker | None = None
        if self._device.type == "cpu" or isinstance(tensor, FakeTensor) or _C.is_simulated(tensor):
            self._tracker = MemTracker()
            self._tracker.track_external(root)

    def _set_depth(self, depth: int) -> None:
        if depth > 0:
            if self._tracker is None:
                torch.get_device_module(self._device).empty_cache()
            else:
                self._tracker._set_depth(1)
            self._modules._set_depth(1)
            self._mode._set_depth(1)
        else:
            self._mode._set_depth(0)
            self._modules._set_depth(0)
            if self._tracker is not None:
                self._tracker._set_depth(0)
        self._depth = depth

    def _marks(self, marker: str) -> Callable[..., None]:
        def hook(module: nn.Module, *_: Any) -> None:
            if module is self._root and not self._modules.is_bw:  # not when it is recomputed
                self._owner._add_marker(marker)

        return hook

    def find_place(self) -> str:
        """The innermost running module below the root, and its phase; empty outside of modules."""
        root = self._modules.get_known_fqn(self._root)
        names = self._modules.parents
        if root is None or root not in names:
            return ""
        inner = max((name for name in names if name.startswith(f"{root}.")), key=len, default=root)
        phase = "backward" if self._modules.is_bw else "forward"
        return f"{inner[len(root) + 1 :]}.{phase}"

    def read(self) -> Figures:
        if self._tracker is not None:
            current = dict(self._tracker._native.current())
            live = sum(current.get(self._device, ()))
            return live, live, live
        module = torch.get_device_module(self._device)
        active = module.memory_stats(self._device).get("active_bytes.all.current", 0)
        return module.memory_allocated(self._device), active, module.memory_reserved(self._device)

    def count_retries(self) -> int:
        if self._tracker is not None:
            return 0
        stats = torch.get_device_module(self._device).memory_stats(self._device)
        return int(stats.get("num_alloc_retries", 0))
