# SPDX-License-Identifier: BSD-3-Clause
"""Where the memory of a training run is; a drop-in for torch.distributed._tools."""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from enum import Enum, auto
from functools import partial
from pathlib import Path
from typing import Any, Self

import torch
from torch import nn, optim
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

from tidegauge import _C
from tidegauge._torch import memory_patches
from tidegauge._util.notebook import render_peaks
from tidegauge._util.ordering import natural_order
from tidegauge.trackers import printing
from tidegauge.trackers.common_utils import get_untyped_storages as get_untyped_storages
from tidegauge.trackers.mod_tracker import ModTracker
from tidegauge.trackers.module_stats import LiveStats, ModuleStatsDictionary, make_snapshot
from tidegauge.trackers.printing import Snapshot
from tidegauge.trackers.recorder import Recorder

__all__ = ["MemTracker"]

# The names by which code written for upstream imports them from here.
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

# CUDA's caching allocator gives out multiples of this; without caching every size is as asked for.
_PYTORCH_MIN_ALLOCATE = (
    1 if os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING", "").strip("0") else 512
)


# No StrEnum: `str(member)` is "_MemRefType.PARAM" for those who print it.
class _RefType(str, Enum):  # noqa: UP042
    """What a storage is used for. A member equals its text, so a snapshot is indexed by either."""


class _State(str, Enum):  # noqa: UP042
    """When a snapshot of a module was taken."""


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
    """Bytes that a module has, takes and returns, and snapshots at each state of each call.

    The four sizes do not exist before they are known; `output_mem` is when the forward has ended.
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
    """The bytes of one storage, rounded as its device's allocator does, and their use."""

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
        """The bytes after the storage may have been resized."""
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
        """Also returns a weak reference; `callback(info, reference)` is called when `st` dies."""
        info = cls(st.size(), st.element_size(), device, reftype)
        return info, weakref.ref(st, partial(callback, info) if callback else None)


class MemTracker(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Tells how much memory there is of each category and device: now, at the peak, in each module.

    What is made within the context is tracked from its birth; what was made before is told by
    `track_external`::

        tracker = MemTracker()
        tracker.track_external(model, optimizer, inputs)
        with tracker:
            model(inputs).sum().backward()
            optimizer.step()
        tracker.display_snapshot("peak", units="MiB")
        tracker.display_modulewise_snapshots(depth=3, units="MiB")

    When a root module is called again, module statistics begin anew, while the peak goes on; with
    `strict` the second call raises NotImplementedError unless `reset_mod_stats` came between.

    With `allocator` all that torch's CPU allocator makes within the context is counted, in whatever
    thread, also what no tensor shows: workspace of kernels, buffers of generated code and of
    collectives. The total is the allocator's then, at every instant (of several threads at once, in
    the order in which they get our lock). What belongs to no tensor is part of Other;
    `get_untracked_memory` tells how much.

    With `record="run.tide"` all of it goes to a trace file as well, which is written when the
    context is left, and ended when the tracker or the process is; a `Recorder` has more options.

    `stacks` says what the trace, and `post_mortem`, tell of where memory was allocated: "none",
    "module" (the modules that were running; cheap) or "python" (files, lines and functions, without
    those of torch; in a thread that runs no Python, the modules).

    It is a TorchDispatchMode by name only: operators are seen below the dispatcher's modes, so that
    the run is the same as without the tracker. The mode is pushed for a subclass that overrides
    `__torch_dispatch__`.
    """

    _ref_class: type[_RefType] = _MemRefType
    _stats_class: Callable[[str], LiveStats] = _LiveModMemStats
    _is_sharded = False

    def __init__(
        self,
        *,
        strict: bool = False,
        allocator: bool = False,
        record: str | os.PathLike[str] | Recorder | None = None,
        stacks: str = "none",
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._mod_tracker = ModTracker()
        self._core = _C.MemTracker(
            self._mod_tracker._core, strict, allocator, stacks, self._is_sharded
        )
        self._recorder: Recorder | None = None
        if record is not None:
            self._recorder = record if isinstance(record, Recorder) else Recorder(record)
            self._core.record_to(self._recorder._core)
        self._module_stats = ModuleStatsDictionary(self._core, self._stats_class)
        self._depth = 0
        self._fake_mode_on_entry: Any = None
        self._entry = ExitStack()

    @property
    def memory_tracking(self) -> WeakIdKeyDictionary:
        """Statistics (`_ModMemStats`) of each living module that was called, by the module itself.

        One and the same dictionary each time; it and what it contains follow the run.
        """
        return self._module_stats

    @property
    def _curr_mem_snap(self) -> Snapshot:
        return make_snapshot(self._core.current(), self._ref_class)

    @property
    def _peak_mem_snap(self) -> Snapshot:
        return make_snapshot(self._core.peak(), self._ref_class)

    @property
    def _peak_mem(self) -> dict[torch.device, int]:
        return {device: sum(sizes) for device, sizes in self._core.peak()}

    @property
    def _in_opt(self) -> bool:
        return self._core.in_optimizer_step()

    @property
    def _in_ac(self) -> bool:
        return self._core.in_recompute()

    def track_external(self, *external: nn.Module | optim.Optimizer | torch.Tensor) -> None:
        """Tracks what was made outside, also within lists, tuples and dictionaries.

        Parameters, buffers and gradients of a module, states of an optimizer; a tensor counts as
        Other. What is told twice has the last label. Raises TypeError for anything else but None.
        """
        for item in tree_leaves(external):
            if isinstance(item, torch.Tensor):
                self._core.track_tensor(item, "external")
            elif isinstance(item, nn.Module):
                self._core.track_module(item)
            elif isinstance(item, optim.Optimizer):
                self._core.track_optimizer(item)
            elif item is not None:
                raise TypeError(
                    f"Object of type {type(item)} is not supported for tracking. "
                    "Only stateful objects like modules, optimizers, and tensors are supported."
                )

    def get_tracker_snapshot(self, type: str = "current") -> Snapshot:
        """Bytes by device and category, with their "Total"; `type` is "current" or "peak".

        Each device has its own moment of the peak, and its categories are those of that moment.
        """
        if type == "current":
            return self._curr_mem_snap
        if type == "peak":
            return self._peak_mem_snap
        raise ValueError(f"Invalid type {type}")

    def get_foreign_memory(self) -> dict[torch.device, int]:
        """Bytes by device, among the current ones, that torch's allocators did not make.

        NumPy arrays, shared memory, mapped files, memory wrapped by `from_blob`. They are part of
        their categories as well.
        """
        return self._core.foreign()

    def get_untracked_memory(self, type: str = "current") -> dict[torch.device, int]:
        """Bytes by device that the allocator made and no tensor has shown; part of Other.

        Only with `allocator`; `type` is "current" or "peak", the moment of the most bytes in all.
        """
        if type not in ("current", "peak"):
            raise ValueError(f"Invalid type {type}")
        splits = self._core.splits(type == "peak")
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
        """Prints the snapshots of the modules down to `depth`; 1 is the root modules alone."""
        show = _print_state_snapshots_tabular if tabulate else _print_state_snapshots
        all_stats = self.memory_tracking.values()  # type: ignore[no-untyped-call]
        for stats in sorted(all_stats, key=lambda stats: natural_order(stats.mod_fqn)):
            if stats.mod_fqn.count(".") < depth:
                print(f"Module:  {stats.mod_fqn}")
                show(stats.snapshots, units)

    def post_mortem(self) -> _C.PostMortem | None:
        """The memory at the last allocation that failed, by category, module and tensor.

        None if none has failed. Its text was printed to stderr then, and it is in the trace.
        """
        return self._core.post_mortem()

    def _repr_html_(self) -> str:
        """What a notebook shows of it: the peak by category, as a table and a bar."""
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
        """Forgets the statistics of modules. Bytes, labels, names and the peak stay."""
        self.memory_tracking.clear()

    def __enter__(self) -> Self:
        if self._depth == 0:
            with ExitStack() as entry:  # undone if one of them raises
                entry.enter_context(self._mod_tracker)
                memory_patches.install()
                entry.callback(memory_patches.uninstall)
                self._prepare(entry)
                # Compared by its address, so it must not die while we are entered.
                self._fake_mode_on_entry = torch._C._get_dispatch_mode(
                    torch._C._TorchDispatchModeKey.FAKE
                )
                self._core.start()
                entry.callback(self._core.stop)
                self._entry = entry.pop_all()
        if self._is_mode():
            super().__enter__()  # type: ignore[no-untyped-call]
        self._depth += 1
        return self

    def __exit__(self, *args: object) -> None:
        if self._depth == 0:
            name = type(self).__name__
            raise AttributeError(
                f"'{name}' object has no attribute 'old_dispatch_mode_flags': it was exited "
                "without being entered; use it as `with tracker:`, or call `__enter__` first"
            )
        self._depth -= 1
        if self._is_mode():
            super().__exit__(None, None, None)  # type: ignore[no-untyped-call]
        if self._depth == 0:
            self._entry.close()
            self._fake_mode_on_entry = None
            if self._recorder is not None:
                self._recorder.flush()

    def _prepare(self, entry: ExitStack) -> None:
        """What a subclass does at the outermost entry, before the peak restarts."""

    def _is_mode(self) -> bool:
        return type(self).__torch_dispatch__ is not MemTracker.__torch_dispatch__

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """What an overriding subclass calls: runs the operator, which is seen further below.

        DTensors are left to take themselves apart first, so that the mode gets local tensors.
        """
        distributed_tensor = sys.modules.get("torch.distributed.tensor")
        if distributed_tensor is not None and distributed_tensor.DTensor in types:
            return NotImplemented
        return func(*args, **(kwargs or {}))
