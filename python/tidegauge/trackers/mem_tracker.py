# SPDX-License-Identifier: BSD-3-Clause
"""MemTracker: the memory of a training run; a drop-in for torch.distributed._tools."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable
from enum import Enum, auto
from functools import partial
from pathlib import Path
from typing import Any, Self

import torch
from torch import nn, optim
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

from tidegauge import _C, _core
from tidegauge._torch import memory_patches
from tidegauge._torch.entering import EnteringMode
from tidegauge._util.notebook import render_peaks
from tidegauge._util.ordering import natural_order
from tidegauge.trackers import printing
from tidegauge.trackers.common_utils import get_untyped_storages as get_untyped_storages
from tidegauge.trackers.memory_recorder import MemoryRecorder
from tidegauge.trackers.mod_tracker import ModTracker
from tidegauge.trackers.module_stats import LiveStats, ModuleStatsDictionary, make_snapshot
from tidegauge.trackers.printing import Snapshot
from tidegauge.trackers.recorder import Recorder

__all__ = ["MemTracker"]

# The names that code written for upstream imports from here.
_TOTAL_KEY = printing.TOTAL_KEY
_get_mem_divisor = printing.find_divisor
_rounding_fn = printing.round_bytes
_print_snapshot = printing.print_snapshot
_print_snapshot_tabular = printing.print_snapshot_table
_print_state_snapshots = printing.print_states
_print_state_snapshots_tabular = printing.print_states_table

_C.hide_frames_below(
    [f"{folder}{os.sep}" for folder in (Path(torch.__file__).parent, Path(__file__).parents[1])]
)

# CUDA's caching allocator rounds sizes up to multiples of this; without caching it does not.
_PYTORCH_MIN_ALLOCATE = _core.device_unit_bytes()


# Not a StrEnum: upstream's `str(member)` is "_MemRefType.PARAM".
class _RefType(str, Enum):  # noqa: UP042
    """The use of a storage. A member equals its text, so a snapshot can be indexed by either."""


class _State(str, Enum):  # noqa: UP042
    """The moment at which a snapshot of a module was taken."""


class _MemRefType(_RefType):
    PARAM = "Parameter"
    BUFFER = "Buffer"
    GRAD = "Gradient"
    ACT = "Activation"
    TEMP = "Temp"
    OPT = "Optstate"
    OTH = "Other"


class _ModState(_State):
    PRE_FW = "Pre-Forward"
    POST_FW = "Post-Forward"
    PEAK_FW = "Peak-Forward"
    PRE_BW = "Pre-Backward"
    PRE_FW_AC = "Pre-Forward-AC"
    POST_FW_AC = "Post-Forward-AC"
    POST_BW = "Post-Backward"
    PEAK_BW = "Peak-Backward"


class _UpdateType(Enum):
    ADD = auto()
    DEL = auto()
    REF = auto()
    SIZE = auto()


class _ModMemStats:
    """Bytes of a module's parameters, buffers, inputs and outputs; snapshots of each call.

    An attribute for a size exists once it is known; `output_mem` after the forward.
    """

    parameter_mem: int
    buffer_mem: int
    input_mem: int
    output_mem: int

    def __init__(self, mod_fqn: str) -> None:
        self.mod_fqn = mod_fqn
        self.local_peak: dict[torch.device, int] = {}
        self.snapshots: dict[_ModState, list[Snapshot]] = {}


class _LiveModMemStats(LiveStats, _ModMemStats):
    _categories = _MemRefType
    _states = _ModState


class _WeakRefInfo:
    """The bytes of one storage, rounded like its device's allocator does, and their use."""

    def __init__(
        self, size: int, element_size: int, device: torch.device, reftype: _RefType
    ) -> None:
        self.size = size
        self.element_size = element_size
        self.device = device
        self.reftype = reftype
        self.mem_consumed = self._calculate_mem_consumed()

    def _calculate_mem_consumed(self) -> int:
        unit = _PYTORCH_MIN_ALLOCATE if self.device.type == "cuda" else 1
        return -(-self.size * self.element_size // unit) * unit  # rounded up

    def update_mem_consumed(self, st: torch.UntypedStorage) -> int:
        """Updates and returns the bytes of a storage that may have been resized."""
        if self.size != st.size():
            self.size = st.size()
            self.mem_consumed = self._calculate_mem_consumed()
        return self.mem_consumed

    @classmethod
    def create_winfo(
        cls,
        st: torch.UntypedStorage,
        device: torch.device,
        reftype: _RefType,
        callback: Callable[[Self, weakref.ref[Any]], Any] | None = None,
    ) -> tuple[Self, weakref.ref[torch.UntypedStorage]]:
        """The info and a weak reference; `callback(info, reference)` is called when `st` dies."""
        info = cls(st.size(), st.element_size(), device, reftype)
        return info, weakref.ref(st, partial(callback, info) if callback else None)


class MemTracker(EnteringMode):
    """Counts memory by category and device: now, at the peak, in each module.

    Tensors that are made within the context are tracked from their allocation; pass older ones to
    `track_external`::

        tracker = MemTracker()
        tracker.track_external(model, optimizer, inputs)
        with tracker:
            model(inputs).sum().backward()
            optimizer.step()
        tracker.display_snapshot("peak", units="MiB")
        tracker.display_modulewise_snapshots(depth=3, units="MiB")

    When a root module is called again, its statistics start over, while the peak is kept. With
    `strict` the second call raises NotImplementedError unless `reset_mod_stats` was called before.

    With `allocator` the tracker counts all memory that torch's CPU allocator allocates within the
    context, in any thread, also memory without a tensor: workspace of kernels, buffers of generated
    code and of collectives. Then the total equals the allocator's at every instant (with several
    threads, in the order in which they get our lock). Memory without a tensor is part of Other;
    `get_untracked_memory` returns its size.

    With `record="run.tide"` the events are also written to a trace file. The file is up to date
    when the context is left, and complete when the tracker or the process ends. A `Recorder` has
    more options.

    `stacks` selects the stack that the trace and `post_mortem` record for each allocation: "none",
    "module" (the running modules; cheap) or "python" (files, lines and functions, without those of
    torch; in a thread that runs no Python, the modules).

    It is a TorchDispatchMode by name only: it observes operators below the dispatcher's modes, so
    that the run is the same as without the tracker. The mode is pushed only for a subclass that
    overrides `__torch_dispatch__`.
    """

    _ref_class: type[_RefType] = _MemRefType
    _stats_class: Callable[[str], LiveStats] = _LiveModMemStats
    _is_sharded = False

    def __init__(
        self,
        *,
        strict: bool = False,
        allocator: bool = False,
        record: str | os.PathLike[str] | Recorder | MemoryRecorder | None = None,
        stacks: str = "none",
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._mod_tracker = ModTracker()
        self._native = _C.MemTracker(
            self._mod_tracker._native, strict, allocator, stacks, self._is_sharded
        )
        self._recorder: Recorder | MemoryRecorder | None = None
        if record is not None:
            self._recorder = (
                record if isinstance(record, Recorder | MemoryRecorder) else Recorder(record)
            )
            self._recorder.attach(self._native)
        self._module_stats = ModuleStatsDictionary(self._native, self._stats_class)
        self._fake_mode_on_entry: Any = None

    @property
    def memory_tracking(self) -> WeakIdKeyDictionary:
        """{module: `_ModMemStats`} for each living module that was called.

        Always the same dictionary; it and its values follow the run.
        """
        return self._module_stats

    @property
    def _curr_mem_snap(self) -> Snapshot:
        return make_snapshot(self._native.current(), self._ref_class)

    @property
    def _peak_mem_snap(self) -> Snapshot:
        return make_snapshot(self._native.peak(), self._ref_class)

    @property
    def _peak_mem(self) -> dict[torch.device, int]:
        return {device: sum(sizes) for device, sizes in self._native.peak()}

    @property
    def _in_opt(self) -> bool:
        return self._native.in_optimizer_step()

    @property
    def _in_ac(self) -> bool:
        return self._native.in_recompute()

    def track_external(self, *external: nn.Module | optim.Optimizer | torch.Tensor) -> None:
        """Tracks objects made outside the context, also within lists, tuples and dictionaries.

        Parameters, buffers and gradients of a module, states of an optimizer; a tensor counts as
        Other. The last call decides the label. Raises TypeError for anything else but None.
        """
        for item in tree_leaves(external):
            if isinstance(item, torch.Tensor):
                self._native.track_tensor(item, "external")
            elif isinstance(item, nn.Module):
                self._native.track_module(item)
            elif isinstance(item, optim.Optimizer):
                self._native.track_optimizer(item)
            elif item is not None:
                raise TypeError(
                    f"Object of type {type(item)} is not supported for tracking. "
                    "Only stateful objects like modules, optimizers, and tensors are supported."
                )

    def get_tracker_snapshot(self, type: str = "current") -> Snapshot:
        """Bytes by device and category, with their "Total"; `type` is "current" or "peak".

        Each device has its own peak, with its categories at that moment.
        """
        if type == "current":
            return self._curr_mem_snap
        if type == "peak":
            return self._peak_mem_snap
        raise ValueError(f"Invalid type {type}")

    def get_foreign_memory(self) -> dict[torch.device, int]:
        """Current bytes by device that torch's allocators did not allocate.

        NumPy arrays, shared memory, mapped files, memory wrapped by `from_blob`. They also count in
        their categories.
        """
        return self._native.foreign()

    def get_untracked_memory(self, type: str = "current") -> dict[torch.device, int]:
        """Bytes by device that the allocator allocated and no tensor owns; part of Other.

        Only with `allocator`; `type` is "current" or "peak", the peak of the total.
        """
        if type not in ("current", "peak"):
            raise ValueError(f"Invalid type {type}")
        splits = self._native.splits(type == "peak")
        held = {device: split.get("Untracked", 0) for device, split in splits.items()}
        return {device: size for device, size in held.items() if size}

    def display_snapshot(
        self, type: str = "current", units: str = "B", tabulate: bool = False
    ) -> None:
        """Prints a snapshot, as lines or as a table; `units` are "B", "KiB", "MiB" or "GiB"."""
        show = _print_snapshot_tabular if tabulate else _print_snapshot
        show(self.get_tracker_snapshot(type), units)

    def display_modulewise_snapshots(
        self, depth: int = 2, units: str = "B", tabulate: bool = False
    ) -> None:
        """Prints the snapshots of the modules down to `depth`; 1 means the root modules alone."""
        show = _print_state_snapshots_tabular if tabulate else _print_state_snapshots
        all_stats = self.memory_tracking.values()  # type: ignore[no-untyped-call]
        for stats in sorted(all_stats, key=lambda stats: natural_order(stats.mod_fqn)):
            if stats.mod_fqn.count(".") < depth:
                print(f"Module:  {stats.mod_fqn}")
                show(stats.snapshots, units)

    def post_mortem(self) -> _core.PostMortem | None:
        """The memory at the last failed allocation, by category, module and tensor.

        None if no allocation failed. Its text was also printed to stderr and recorded.
        """
        return self._native.post_mortem()

    def _repr_html_(self) -> str:
        """For notebooks: the peak by category, as a table and a bar."""
        splits = {
            str(device): {
                category.value: size
                for category, size in split.items()
                if isinstance(category, Enum)  # without the total
            }
            for device, split in self._peak_mem_snap.items()
        }
        return render_peaks(type(self).__name__, splits)

    def reset_mod_stats(self) -> None:
        """Drops the statistics of modules. Bytes, labels, names and the peak stay."""
        self.memory_tracking.clear()

    def _set_depth(self, depth: int) -> None:
        if depth > 0 and not self._native.is_started:
            self._mod_tracker._set_depth(1)
            memory_patches.install(self)
            self._prepare()
            # Kept alive while we are entered, because the native tracker compares its address.
            self._fake_mode_on_entry = torch._C._get_dispatch_mode(
                torch._C._TorchDispatchModeKey.FAKE
            )
            self._native.start()
            self._note_problems()
        if self._is_mode():
            self._push_until(depth)
        if depth == 0:
            self._native.stop()
            self._clean_up()
            memory_patches.uninstall(self)
            self._mod_tracker._set_depth(0)
            self._fake_mode_on_entry = None
        self._depth = depth
        if depth == 0 and self._recorder is not None:
            self._recorder.flush()

    def _depth_after_exit(self) -> int:
        if self._depth == 0:
            name = type(self).__name__
            raise AttributeError(
                f"'{name}' object has no attribute 'old_dispatch_mode_flags': it was exited "
                "without being entered; use it as `with tracker:`, or call `__enter__` first"
            )
        return self._depth - 1

    def _prepare(self) -> None:
        """Called at the outermost entry, before the peak restarts; for subclasses."""

    def _note_problems(self) -> None:
        memory_patches.note_problems()

    def _clean_up(self) -> None:
        """Called after the outermost exit, and to undo `_prepare`, which may not have ended."""

    def _is_mode(self) -> bool:
        return type(self).__torch_dispatch__ is not MemTracker.__torch_dispatch__

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs the operator, for subclasses that override this; our handler observes it later.

        DTensors are unwrapped first, so that the mode gets local tensors.
        """
        distributed_tensor = sys.modules.get("torch.distributed.tensor")
        if distributed_tensor is not None and distributed_tensor.DTensor in types:
            return NotImplemented
        return func(*args, **(kwargs or {}))
