# SPDX-License-Identifier: BSD-3-Clause
"""FSDPMemTracker: the memory of an FSDP2 run; a drop-in for torch.distributed._tools."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

import torch
from torch import nn, optim
from torch.utils._pytree import tree_leaves

from tidegauge import _C
from tidegauge._torch import compat_fsdp
from tidegauge.trackers.mem_tracker import MemTracker, _RefType, _State
from tidegauge.trackers.memory_recorder import MemoryRecorder
from tidegauge.trackers.module_stats import LiveStats
from tidegauge.trackers.printing import Snapshot
from tidegauge.trackers.recorder import Recorder

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup

__all__ = ["FSDPMemTracker"]


def param_groups_of(model: nn.Module) -> Iterator[FSDPParamGroup]:
    """FSDP2's param groups in a model, each once."""
    from torch.distributed.fsdp import FSDPModule

    seen: set[int] = set()
    for module in model.modules():
        if isinstance(module, FSDPModule):
            for group in compat_fsdp.groups_of(module._get_fsdp_state()):
                if id(group) not in seen:
                    seen.add(id(group))
                    yield group


class _FSDPRefType(_RefType):
    SHARDED_PARAM = "Sharded Param"
    UNSHARDED_PARAM = "Unsharded Param"
    BUFFER = "Buffer"
    SHARDED_GRAD = "Sharded Grad"
    UNSHARDED_GRAD = "Unsharded Grad"
    ACT = "Activation"
    TEMP = "Temp"
    ALL_GATHER = "All Gather"
    REDUCE_SCATTER = "Reduce Scatter"
    OPT = "OptState"
    INP = "Inputs"


class _FSDPModState(_State):
    BEF_PRE_FW = "Before Pre-Forward"
    AFT_PRE_FW = "After Pre-Forward"
    BEF_POST_FW = "Before Post-Forward"
    AFT_POST_FW = "After Post-Forward"
    BEF_PRE_BW = "Before Pre-Backward"
    AFT_PRE_BW = "After Pre-Backward"
    BEF_POST_BW = "Before Post-Backward"
    AFT_POST_BW = "After Post-Backward"
    PRE_FW_AC = "Pre-Forward AC"
    POST_FW_AC = "Post-Forward AC"
    PEAK_FW = "Peak Forward"
    PEAK_BW = "Peak Backward"


class _FSDPState(Enum):
    PRE_FW = auto()
    FW = auto()
    POST_FW = auto()
    PRE_BW = auto()
    BW = auto()
    POST_BW = auto()


class _FSDPModMemStats:
    """Snapshots of an FSDP module at each state of each call."""

    def __init__(self, mod_fqn: str) -> None:
        self.mod_fqn = mod_fqn
        self.local_peak: dict[torch.device, int] = {}
        self.snapshots: dict[_FSDPModState, list[Snapshot]] = {}


class _LiveFSDPModMemStats(LiveStats, _FSDPModMemStats):
    _categories = _FSDPRefType
    _states = _FSDPModState


class FSDPMemTracker(MemTracker):  # type: ignore[no-untyped-call]
    """Counts memory by FSDP2 category: now, at the peak, in each unit.

    The module's parameters, gradients and buffers and the optimizer's states count from entry::

        tracker = FSDPMemTracker(model, optimizer)
        tracker.track_inputs((x,))
        with tracker:
            model(x).sum().backward()
            optimizer.step()
        tracker.display_snapshot("peak", units="MiB")
        for unit in tracker.units():
            print(unit["name"], unit["at_peak"])

    `memory_tracking` holds the FSDP modules that own a param group. The model is not changed:
    FSDP2's classes are wrapped while a tracker is entered.
    """

    _ref_class = _FSDPRefType
    _stats_class: Callable[[str], LiveStats] = _LiveFSDPModMemStats
    _is_sharded = True

    def __init__(
        self,
        mod: nn.Module,
        optm: optim.Optimizer | None = None,
        *,
        strict: bool = False,
        allocator: bool = False,
        record: str | os.PathLike[str] | Recorder | MemoryRecorder | None = None,
        stacks: str = "none",
    ) -> None:
        # Imported late: it is slow, and most users of tidegauge do not shard.
        from torch.distributed.fsdp import FSDPModule

        from tidegauge._torch import fsdp_patches

        if not isinstance(mod, FSDPModule):
            raise AssertionError("FSDPMemTracker only supports FSDP modules")
        if optm is not None and not hasattr(optm, "param_groups"):
            raise TypeError(f"optm is a {type(optm).__name__}, expected an optimizer or None")
        super().__init__(strict=strict, allocator=allocator, record=record, stacks=stacks)
        self._patches = fsdp_patches
        self._root_mod = mod
        self._optm = optm

    def track_inputs(self, inputs: tuple[Any, ...]) -> None:
        """Labels the tensors in `inputs`, at any depth, as Inputs; anything else is ignored."""
        for item in tree_leaves(inputs):
            if isinstance(item, torch.Tensor):
                self._native.track_tensor(item, "input")

    def track_external(self, *external: nn.Module | optim.Optimizer | torch.Tensor) -> None:
        """Does nothing: the constructor gets the module and the optimizer to track."""

    def units(self) -> list[dict[str, Any]]:
        """The memory of each param group, in the order of the groups in the module.

        - "name": relative to the root (which is ""), with "#2" for a module's second group
        - "state": "sharded", "gathering", "unsharded" or "post-forward sharded"
        - "now", "at_peak": {device: {category: bytes}} in our own categories, now and at the
          peak of each device
        - "peak_share": {device: the unit's fraction of that peak}
        - "gatherings": the latest ones, each with its "reason" ("forward", "backward", "prefetch",
          "user", "recompute") and the times, by the steady clock, at which the all-gather began,
          the parameters were unsharded and were released (None: not yet)
        - "timeline": the latest changes, (time_ns, device, {category: bytes})
        - "reduce_count": the number of reductions so far
        """
        return self._native.units()

    def gather(
        self, type: str = "peak", group: ProcessGroup | None = None
    ) -> dict[str, dict[str, dict[str, Any]]] | None:
        """Collects a snapshot of every rank on rank 0 of `group`; the other ranks get None.

        All ranks must call it, as with any collective. Returns {device: {category: {"min": bytes,
        "min_rank": rank, "max": ..., "max_rank": ..., "all": [bytes of rank 0, ...]}}}, with
        "Total" among the categories. A device here is a kind of device ("cuda"), as each rank has
        its own. Warns if the ranks have different models. Raises RuntimeError without a process
        group.
        """
        from tidegauge.trackers import ranks as all_ranks

        own: dict[str, dict[str, int]] = {}
        for device, split in self.get_tracker_snapshot(type).items():
            sums = own.setdefault(device.type, {})
            for category, size_bytes in split.items():
                name = category.value if isinstance(category, Enum) else category
                sums[name] = sums.get(name, 0) + size_bytes
        model = {
            self._patches.name_of(each): sum(p._orig_size.numel() for p in each.fsdp_params)
            for each in param_groups_of(self._root_mod)
        }
        ranks = all_ranks.gather(own, model, group)
        if ranks is None:
            return None
        return {
            device: {
                name: all_ranks.compare([rank.get(device, {}).get(name, 0) for rank in ranks])
                for name in [*(member.value for member in _FSDPRefType), "Total"]
            }
            for device in sorted({device for rank in ranks for device in rank})
        }

    def _prepare(self) -> None:
        self._patches.install(self)
        for group in param_groups_of(self._root_mod):
            self._track_group(group)
        self._native.track_module(self._root_mod)
        if self._optm is not None:
            self._native.track_optimizer(self._optm)
            self._check_optimizer(self._optm)

    def _clean_up(self) -> None:
        self._patches.uninstall(self)

    def _track_group(self, group: FSDPParamGroup) -> None:
        """Labels the memory that the group has on entry. Entry may be in the middle of a step."""
        fsdp = self._patches
        unit, parameters = fsdp.intern_unit(group), group.fsdp_params
        self._native.add_unit(unit, fsdp.name_of(group), group.modules)

        def label(fact: _C.UnitFact, *tensors: torch.Tensor | None) -> None:
            self._native.label_unit(unit, fact, [t for t in tensors if t is not None])

        fact = _C.UnitFact
        label(fact.SHARD, *fsdp.shards_of(parameters))
        label(fact.SHARD_GRAD, *fsdp.shard_grads_of(parameters))
        label(fact.UNSHARDED_GRAD, *fsdp.unsharded_grads_of(parameters))
        label(fact.UNSHARDED, *fsdp.unsharded_params_of(parameters))
        for parameter in parameters:
            shard = getattr(parameter, "_sharded_post_forward_param_data", None)
            label(fact.POST_FORWARD_SHARD, shard)
        label(fact.ALL_REDUCE_BUFFER, group._partial_reduce_output)
        if group._all_gather_result is not None:
            label(fact.GATHER_BUFFER, group._all_gather_result.all_gather_output)
        if group._all_gather_result is not None or group.is_unsharded:
            self._native.resume_unit(unit, group.is_unsharded)

    def _check_optimizer(self, optimizer: optim.Optimizer) -> None:
        own = {id(parameter) for parameter in self._root_mod.parameters()}
        for unit in param_groups_of(self._root_mod):
            own.update(id(parameter.sharded_param) for parameter in unit.fsdp_params)
        groups = optimizer.param_groups
        if not any(id(parameter) in own for group in groups for parameter in group["params"]):
            warnings.warn(
                f"no parameter of the {type(optimizer).__name__} belongs to the "
                f"{type(self._root_mod).__name__}: its step will not train the module. Make the "
                "optimizer after fully_shard, which replaces the parameters",
                stacklevel=3,
            )
