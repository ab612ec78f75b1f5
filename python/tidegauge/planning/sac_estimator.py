# SPDX-License-Identifier: BSD-3-Clause
"""SACEstimator: what recomputing the ops of each module would save and cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_leaves

from tidegauge import _core
from tidegauge._torch.entering import EnteringMode
from tidegauge.planning.auto_checkpointing import OPS_TO_ALWAYS_SKIP
from tidegauge.planning.op_times import OpTimes, check_mode, choose_device, find_ms
from tidegauge.planning.sac_stats import SACGreedyOrderMeta, SACStats, SACTradeOffStats
from tidegauge.planning.sac_tables import print_stats, print_tradeoff
from tidegauge.planning.tradeoff import fit_tradeoff, order_greedily, plot_tradeoff
from tidegauge.trackers.common_utils import get_untyped_storages
from tidegauge.trackers.mod_tracker import ModTracker

_UNIT = _core.device_unit_bytes()


@dataclass
class _Op:
    """One op of the forward. Storages are numbers that are never given twice."""

    func: Any
    ms: float
    sizes: dict[int, int]  # bytes by storage of its results
    reads: set[int]  # storages of its arguments
    is_view: bool
    is_random: bool
    is_in_place: bool
    is_skipped: bool  # no checkpoint stores it, so there is nothing to choose


class SACEstimator(EnteringMode):
    """Tells for each module with children what its ops take and keep, and in which order it pays to
    recompute them::

        estimator = SACEstimator(device="h100-80g")
        with FakeTensorMode():  # or tidegauge.simulate(), or real tensors
            ...
            with estimator("operator-level-cost-model"):
                loss = model(x).sum()
        estimator.pwlf_sac_tradeoff_curve()
        estimator.display_modulewise_sac_stats(depth=2, print_tabular=True)

    `sac_mod_stats`, `sac_mod_greedy_order_meta` and `sac_mod_tradeoff_stats` are dictionaries by
    name of the module. Only the forward counts; a module that runs several times has the ops of all
    calls. When a root module is called again, its modules start anew. `gpu_type` is a name of a
    device as CUDA reports it, `device` one of `tidegauge devices`.
    """

    def __init__(self, gpu_type: str | None = None, *, device: str | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.sac_mod_stats: dict[str, SACStats] = {}
        self.sac_mod_tradeoff_stats: dict[str, SACTradeOffStats] = {}
        self.sac_mod_greedy_order_meta: dict[str, SACGreedyOrderMeta] = {}
        self._times = OpTimes(choose_device(gpu_type, device))
        self._mod_tracker = ModTracker()
        self._saved_tensor_hooks = _SavedTensorHooks(self._note_saved)
        self._ops: list[_Op] = []  # of the root that runs
        self._open: list[tuple[str, int, bool]] = []  # name, first op, is without tensors
        self._calls: dict[str, tuple[list[_Op], set[int], bool]] = {}
        self._storages: dict[int, tuple[int, StorageWeakRef]] = {}
        self._saved: set[int] = set()

    def __call__(self, estimate_mode_type: str) -> Self:
        check_mode(estimate_mode_type)
        return self

    def _set_depth(self, depth: int) -> None:
        if depth > 1:
            raise RuntimeError("this SACEstimator is entered already; make another one")
        if depth > self._depth:
            self._mod_tracker.clear_user_hooks()
            self._mod_tracker.register_user_hooks(
                pre_fw_hook=self._begin_module, post_fw_hook=self._end_module
            )
            self._mod_tracker._set_depth(1)
            self._saved_tensor_hooks.push()
            self._times.start()
            self._push_until(1)
        elif depth == 0:
            self._push_until(0)
            self._times.stop()
            self._saved_tensor_hooks.pop()
            self._mod_tracker._set_depth(0)
            self._mod_tracker.clear_user_hooks()
            self._open.clear()
        self._depth = depth

    def pwlf_sac_tradeoff_curve(
        self, n_segments: int = 2, save_tradeoff_graphs: bool = False
    ) -> None:
        """Fits lines to the curve of each module. The same statistics always give the same lines.

        `save_tradeoff_graphs` draws them with matplotlib into the folder `tradeoff_graphs`.
        """
        for name, stats in self.sac_mod_stats.items():
            order = self.sac_mod_greedy_order_meta[name]
            tradeoff = fit_tradeoff(stats, order, n_segments)
            self.sac_mod_tradeoff_stats[name] = tradeoff
            if save_tradeoff_graphs:
                plot_tradeoff(tradeoff, name)

    def display_sac_stats(self, sac_stats: SACStats, print_tabular: bool = False) -> None:
        """Prints the ops of a module."""
        print_stats(sac_stats, print_tabular)

    def display_sac_tradeoff_stats(
        self,
        greedy_order_meta: SACGreedyOrderMeta,
        sac_stats: SACStats,
        print_tabular: bool = False,
    ) -> None:
        """Prints what is saved and recomputed if ops are discarded in the greedy order."""
        print_tradeoff(greedy_order_meta, sac_stats, print_tabular)

    def display_modulewise_sac_stats(self, depth: int = 2, print_tabular: bool = False) -> None:
        """Prints both tables for modules down to `depth`; 1 means the root modules alone."""
        for name, stats in self.sac_mod_stats.items():
            if name.count(".") < depth:
                print(f"Module: {name}")
                self.display_sac_stats(stats, print_tabular)
                print(f"AC Trade-off for Module: {name} MSPS = Memory/Runtime")
                order = self.sac_mod_greedy_order_meta[name]
                self.display_sac_tradeoff_stats(order, stats, print_tabular)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result, ms = find_ms(self._times, func, args, kwargs)
        if self._open:
            self._ops.append(self._describe(func, args, kwargs or {}, result, ms))
        return result

    def _describe(self, func: Any, args: Any, kwargs: Any, result: Any, ms: float) -> _Op:
        sizes = {}
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                unit = _UNIT if tensor.device.type == "cuda" else 1
                for storage in get_untyped_storages(tensor):
                    sizes[self._number(storage)] = -(-storage.nbytes() // unit) * unit
        writes = {each.alias_info.is_write for each in func._schema.returns if each.alias_info}
        changes_shape = torch.Tag.inplace_view in func.tags
        return _Op(
            func,
            ms,
            sizes,
            {
                self._number(storage)
                for tensor in tree_leaves((args, kwargs))
                if isinstance(tensor, torch.Tensor)
                for storage in get_untyped_storages(tensor)
            },
            is_view=changes_shape or writes == {False},
            is_random=_is_random(func, args, kwargs),
            is_in_place=True in writes and not changes_shape,
            is_skipped=func in OPS_TO_ALWAYS_SKIP or func.namespace == "prim",
        )

    def _number(self, storage: torch.UntypedStorage) -> int:
        """The weak reference keeps the address of a freed storage from being used again."""
        reference = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
        number, _ = self._storages.setdefault(reference.cdata, (len(self._storages), reference))
        return number

    def _note_saved(self, tensor: torch.Tensor) -> torch.Tensor:
        self._saved.update(map(self._number, get_untyped_storages(tensor)))
        return tensor

    def _begin_module(self, module: nn.Module, inputs: Any) -> None:
        if self._mod_tracker.is_bw:
            return
        if not self._open:
            self._ops.clear()
        name = self._mod_tracker.get_known_fqn(module) or type(module).__name__
        if not self._open:
            for known in [key for key in self._calls if f"{key}.".startswith(f"{name}.")]:
                del self._calls[known]
        has_tensors = any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(inputs))
        self._open.append((name, len(self._ops), not has_tensors))

    def _end_module(self, module: nn.Module, inputs: Any, outputs: Any) -> None:
        if self._mod_tracker.is_bw or not self._open:
            return
        name, begin, force_store_random = self._open.pop()
        if outputs is None or next(module.children(), None) is None:
            return  # it raised, or is a leaf
        ops, forced = self._ops[begin:], force_store_random
        if name in self._calls:
            before, _, was_forced = self._calls[name]
            ops, forced = before + ops, forced or was_forced
        self._calls[name] = ops, set(), forced
        stats = _make_stats(ops, self._saved, forced)
        self.sac_mod_stats.pop(name, None)  # the last to end is the last in the dictionary
        self.sac_mod_stats[name] = stats
        self.sac_mod_greedy_order_meta[name] = order_greedily(stats)


class _SavedTensorHooks:
    """As torch's `saved_tensors_hooks`, but both methods can be repeated after an interrupt."""

    def __init__(self, note: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self._note = note

    def push(self) -> None:
        if not self._is_on_top():
            torch._C._autograd._push_saved_tensors_default_hooks(self._note, lambda tensor: tensor)

    def pop(self) -> None:
        """Does nothing in another thread, which has hooks of its own."""
        if self._is_on_top():
            torch._C._autograd._pop_saved_tensors_default_hooks()

    def _is_on_top(self) -> bool:
        hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
        return hooks is not None and hooks[0] is self._note


def _is_random(func: Any, args: Any, kwargs: Any) -> bool:
    """Attention without dropout draws nothing."""
    if torch.Tag.nondeterministic_seeded not in func.tags:
        return False
    for place, argument in enumerate(func._schema.arguments):
        if argument.name == "dropout_p":
            value = args[place] if place < len(args) else kwargs.get("dropout_p", 0.0)
            return bool(value)
    return True


def _reads_only(op: _Op, storages: dict[int, int]) -> bool:
    return not op.is_view and not op.is_in_place and not op.reads.isdisjoint(storages)


def _make_stats(all_ops: list[_Op], saved: set[int], force_store_random: bool) -> SACStats:
    """A storage counts for the first op that has it, unless it came from outside.

    The last result is the output of the module, which no checkpoint can discard.
    """
    first: dict[int, int] = {}
    made: set[int] = set()  # by ops without a choice, such as `clone`
    ops: list[_Op] = []
    memory: list[int] = []
    in_place: list[tuple[int, int]] = []
    for op in all_ops:
        new = op.sizes.keys() - first.keys()
        if op.is_skipped:
            made |= new
            continue
        place = len(ops)
        ops.append(op)
        first.update(dict.fromkeys(new, place))
        if op.is_view or op.is_in_place:
            new &= made
        memory.append(sum(op.sizes[number] for number in new))
        if op.is_in_place:
            head = min((first[number] for number in op.sizes), default=place)
            # An op that read the old value could not be recomputed from a stored new one.
            in_place += [
                (reader, head)
                for reader in range(head + 1, place)
                if _reads_only(ops[reader], op.sizes) and (reader, head) not in in_place
            ]
            in_place.append((place, head))
    kept = {place for place, op in enumerate(ops) if op.is_view or op.is_in_place}
    if (last := max(set(range(len(ops))) - kept, default=None)) is not None:
        memory[last] = 0
    return SACStats(
        func_names=[op.func._overloadpacket.__name__ for op in ops],
        runtimes=[op.ms for op in ops],
        memory=memory,
        view_like_ops=[place for place, op in enumerate(ops) if op.is_view],
        rand_ops=[place for place, op in enumerate(ops) if op.is_random],
        saved_autograd_ops=[
            place for place, op in enumerate(ops) if op.sizes and op.sizes.keys() <= saved
        ],
        inplace_ops=in_place,
        force_store_random=force_store_random,
    )
