# SPDX-License-Identifier: BSD-3-Clause
"""Wrappers that observe FSDP2's param groups while an FSDPMemTracker is entered.

FSDP2's hooks on modules are bound methods from the time when a module is sharded. But these hooks
call the param groups, and the param groups call their parameters, by name. So wrappers on the two
classes observe everything, even in models that were sharded before, and no model is changed. A
wrapper reports facts and decides nothing (src/core/ledger/sharded_units.h decides). Our own
failures are counted and do not reach training.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary, ref

import torch
from torch import nn

from tidegauge import _C
from tidegauge._C import ModuleState, UnitFact
from tidegauge._torch import compat_fsdp
from tidegauge._torch.containment import contained
from tidegauge._torch.patching import Installation, Patch, Reads, required_by

with required_by("FSDPMemTracker"):
    from torch.distributed.fsdp._fully_shard._fsdp_collectives import (
        DefaultAllGather,
        DefaultReduceScatter,
    )
    from torch.distributed.fsdp._fully_shard._fsdp_common import TrainingState
    from torch.distributed.fsdp._fully_shard._fsdp_param import FSDPParam
    from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup

_originals: dict[str, Callable[..., Any]] = {}
_units: WeakKeyDictionary[FSDPParamGroup | FSDPParam, int] = WeakKeyDictionary()


class _Running(threading.local):
    """The FSDP2 calls that run in this thread."""

    def __init__(self) -> None:
        self.prefetches = 0
        # The pre-forward of a module ends with the prefetch of this group.
        self.last_prefetch: tuple[ref[FSDPParamGroup], ref[nn.Module]] | None = None


_running = _Running()


def intern_unit(group: FSDPParamGroup) -> int:
    """The unit number of the group and its parameters. It is the same for all trackers."""
    unit = _units.get(group)
    if unit is None:
        unit = _C.new_unit()
        _units[group] = unit
        for parameter in group.fsdp_params:
            _units[parameter] = unit
        _notify_made(unit, group)
    return unit


_intern_unit = contained(intern_unit)


@contained
def _unit_of(parameter: FSDPParam) -> int | None:
    return _units.get(parameter)


@contained
def _notify_made(unit: int, group: FSDPParamGroup) -> None:
    _C.unit_made(unit, name_of(group), group.modules)
    _C.unit_fact(unit, UnitFact.SHARD, shards_of(group.fsdp_params))


def name_of(group: FSDPParamGroup) -> str:
    """FSDP2's name, relative to the root; before the first forward, the class of the module.

    A second group of a module is called `name#2`, a third `name#3`.
    """
    name: str | None = group._module_fqn
    if name is None:
        name = ", ".join(type(module).__name__ for module in group.modules)
    return name if _is_first(group) else f"{name}#{compat_fsdp.index_of(group) + 1}"


def shards_of(parameters: Sequence[FSDPParam]) -> list[torch.Tensor]:
    return [tensor for p in parameters for tensor in (p.sharded_param, p._sharded_param_data)]


def unsharded_params_of(parameters: Sequence[FSDPParam]) -> list[torch.Tensor]:
    return [
        tensor
        for p in parameters
        for tensor in (*p.all_gather_outputs, *getattr(p, "_unsharded_inner_tensors", ()))
    ]


def shard_grads_of(parameters: Sequence[FSDPParam]) -> list[torch.Tensor]:
    return [grad for p in parameters if (grad := p.sharded_param.grad) is not None]


def unsharded_grads_of(parameters: Sequence[FSDPParam]) -> list[torch.Tensor]:
    grads = [p.unsharded_accumulated_grad for p in parameters]
    # Before the first gathering there is no unsharded parameter.
    grads += [p._unsharded_param.grad for p in parameters if hasattr(p, "_unsharded_param")]
    return [grad for grad in grads if grad is not None]


def _call_with_births(
    unit: int, fact: UnitFact, original: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    """Calls the original and labels each storage that it allocates with `fact`."""
    _C.begin_unit_births(unit, fact)
    try:
        return original(*args, **kwargs)
    finally:
        _C.end_unit_births()


# A module may have several groups. They enter forward and backward in their order, and leave the
# backward in reverse order.
_is_first = compat_fsdp.is_first
_is_last = compat_fsdp.is_last


def _tracked_init(self: FSDPParamGroup, *args: Any, **kwargs: Any) -> None:
    """Called when a module is sharded while a tracker is entered."""
    _originals["init"](self, *args, **kwargs)
    _intern_unit(self)


def _tracked_lazy_init(self: FSDPParamGroup) -> None:
    _originals["lazy_init"](self)
    # Now the group has its final name.
    if unit := _intern_unit(self):
        _notify_made(unit, self)


def _tracked_unshard(self: FSDPParamGroup, *args: Any, **kwargs: Any) -> Any:
    if not (unit := _intern_unit_to_gather(self)):
        return _originals["unshard"](self, *args, **kwargs)
    result = _call_with_births(
        unit, UnitFact.GATHER_BUFFER, _originals["unshard"], self, *args, **kwargs
    )
    _notify_gathering(unit, self)
    return result


@contained
def _intern_unit_to_gather(group: FSDPParamGroup) -> int | None:
    """The unit, if `unshard` will begin an all-gather."""
    is_gathered = group._all_gather_result is not None or group.is_unsharded
    return None if is_gathered else intern_unit(group)


@contained
def _notify_gathering(unit: int, group: FSDPParamGroup) -> None:
    if (result := group._all_gather_result) is None:
        return
    if type(group._all_gather_comm) is not DefaultAllGather:
        # A custom all-gather may have allocated its buffer earlier.
        _C.unit_fact(unit, UnitFact.GATHER_BUFFER, [result.all_gather_output])
    _C.unit_gathering(unit, group._training_state.name, _running.prefetches > 0)


def _tracked_wait_for_unshard(self: FSDPParamGroup) -> Any:
    if not (unit := _find_gathering_unit(self)):
        return _originals["wait_for_unshard"](self)
    is_first_time = _is_unsharded_first(self)
    result = _call_with_births(unit, UnitFact.GATHER_BUFFER, _originals["wait_for_unshard"], self)
    if is_first_time:  # later gatherings resize the same storages
        _notify_unsharded(unit, self)
    _C.unit_unsharded(unit)
    return result


@contained
def _find_gathering_unit(group: FSDPParamGroup) -> int | None:
    return None if group._all_gather_result is None else intern_unit(group)


@contained
def _is_unsharded_first(group: FSDPParamGroup) -> bool:
    return not hasattr(group.fsdp_params[-1], "_unsharded_param")


@contained
def _notify_unsharded(unit: int, group: FSDPParamGroup) -> None:
    _C.unit_fact(unit, UnitFact.UNSHARDED, unsharded_params_of(group.fsdp_params))


def _tracked_prefetch_unshard(target_fsdp_param_group: FSDPParamGroup, pass_type: str) -> None:
    _running.prefetches += 1
    try:
        _originals["prefetch_unshard"](target_fsdp_param_group, pass_type)
    finally:
        _running.prefetches -= 1
    if (last := _running.last_prefetch) is not None and last[0]() is target_fsdp_param_group:
        _running.last_prefetch = None
        if (module := last[1]()) is not None:
            _C.mark_modules((module,), ModuleState.AFTER_PRE_FORWARD)


def _tracked_pre_forward(self: FSDPParamGroup, module: nn.Module, *args: Any) -> Any:
    is_entering = _is_entering_forward(self)
    result = _originals["pre_forward"](self, module, *args)
    _notify_pre_forward(self, module, is_entering)
    return result


@contained
def _is_entering_forward(group: FSDPParamGroup) -> bool:
    return group._training_state != TrainingState.FORWARD


@contained
def _notify_pre_forward(group: FSDPParamGroup, module: nn.Module, is_entering: bool) -> None:
    if not _is_last(group) or _in_backward():
        return
    states = module._get_fsdp_state()._states_to_forward_prefetch if is_entering else []  # type: ignore[operator]
    targets = [each for state in states for each in compat_fsdp.groups_of(state)]
    if targets:
        _running.last_prefetch = ref(targets[-1]), ref(module)
    else:
        _C.mark_modules((module,), ModuleState.AFTER_PRE_FORWARD)


def _tracked_post_forward(self: FSDPParamGroup, module: nn.Module | None, *args: Any) -> Any:
    _notify_post_forward(self, module)
    return _originals["post_forward"](self, module, *args)


@contained
def _notify_post_forward(group: FSDPParamGroup, module: nn.Module | None) -> None:
    # Without a module, the root ends the forward of a group whose modules were not all called.
    if module is not None and _is_first(group) and not _in_backward():
        _C.mark_modules((module,), ModuleState.BEFORE_POST_FORWARD)


def _tracked_pre_backward(self: FSDPParamGroup, *args: Any) -> Any:
    is_entering = _notify_before_pre_backward(self)
    result = _originals["pre_backward"](self, *args)
    if is_entering:
        _mark_if(_is_last, self, ModuleState.AFTER_PRE_BACKWARD)
    return result


@contained
def _notify_before_pre_backward(group: FSDPParamGroup) -> bool:
    """True if the group enters its backward now."""
    if group._training_state == TrainingState.PRE_BACKWARD:
        return False
    _mark_if(_is_first, group, ModuleState.BEFORE_PRE_BACKWARD)
    return True


@contained
def _mark_if(
    condition: Callable[[FSDPParamGroup], bool], group: FSDPParamGroup, mark: ModuleState
) -> None:
    if condition(group):
        _C.mark_modules(group.modules, mark)


def _tracked_post_backward(self: FSDPParamGroup, *args: Any) -> Any:
    _notify_unsharded_grads(self)
    _mark_if(_is_last, self, ModuleState.BEFORE_POST_BACKWARD)
    result = _originals["post_backward"](self, *args)
    _mark_if(_is_first, self, ModuleState.AFTER_POST_BACKWARD)
    return result


@contained
def _notify_unsharded_grads(group: FSDPParamGroup) -> None:
    # A separate function, because a list that outlives it would keep the gradients alive.
    unit = intern_unit(group)
    if not group.reduce_grads:  # otherwise foreach_reduce reports them
        _C.unit_fact(unit, UnitFact.UNSHARDED_GRAD, unsharded_grads_of(group.fsdp_params))


def _tracked_finalize_backward(self: FSDPParamGroup) -> None:
    unit = _find_gathering_unit(self)
    _originals["finalize_backward"](self)
    if unit:  # a prefetch that this backward did not need
        _notify_unused(unit, self)


@contained
def _notify_unused(unit: int, group: FSDPParamGroup) -> None:
    _C.unit_released(unit, keeps_post_forward_shard=group.is_sharded_post_forward)


def _tracked_to_sharded(self: FSDPParamGroup) -> None:
    _originals["to_sharded"](self)
    _notify_sharded(self)


@contained
def _notify_sharded(group: FSDPParamGroup) -> None:
    if group._all_gather_result is None:
        _C.unit_released(intern_unit(group), keeps_post_forward_shard=False)


def _tracked_to_sharded_post_forward(self: FSDPParamGroup) -> None:
    _originals["to_sharded_post_forward"](self)
    if unit := _intern_unit(self):
        _C.unit_released(unit, keeps_post_forward_shard=True)


def _with_births(name: str, fact: UnitFact) -> Callable[..., Any]:
    """Wraps a method of a parameter: each storage that it allocates is labelled `fact`."""

    def tracked(self: FSDPParam, *args: Any) -> Any:
        if not (unit := _unit_of(self)):  # its group was not observed yet
            return _originals[name](self, *args)
        return _call_with_births(unit, fact, _originals[name], self, *args)

    return tracked


def _tracked_reset_sharded_param(self: FSDPParam) -> None:
    """Called when `load_state_dict` or `Module.to` replaces the shards."""
    _originals["reset_sharded_param"](self)
    _notify_new_shard(self)


@contained
def _notify_new_shard(parameter: FSDPParam) -> None:
    if unit := _unit_of(parameter):
        _C.unit_fact(unit, UnitFact.SHARD, shards_of([parameter]))


def _tracked_foreach_reduce(
    fsdp_params: list[FSDPParam],
    unsharded_grads: list[torch.Tensor],
    reduce_scatter_group: Any,
    reduce_scatter_stream: Any,
    reduce_scatter_comm: Any,
    *args: Any,
    **kwargs: Any,
) -> Any:
    unit = _notify_before_reduce(fsdp_params, unsharded_grads) or 0
    result = _call_with_births(
        unit,
        UnitFact.REDUCE_BUFFER,
        _originals["foreach_reduce"],
        fsdp_params,
        unsharded_grads,
        reduce_scatter_group,
        reduce_scatter_stream,
        reduce_scatter_comm,
        *args,
        **kwargs,
    )
    if unit:
        _notify_reduced(unit, fsdp_params, reduce_scatter_comm, result)
    return result


@contained
def _notify_before_reduce(parameters: list[FSDPParam], grads: list[torch.Tensor]) -> int | None:
    unit = _unit_of(parameters[0])  # post_backward has numbered it
    if unit:
        _C.unit_fact(unit, UnitFact.UNSHARDED_GRAD, grads)
    return unit


@contained
def _notify_reduced(unit: int, parameters: list[FSDPParam], comm: Any, result: Any) -> None:
    reduce_input, all_reduce_input, partial_output = compat_fsdp.read_reduction(result)
    if type(comm) is not DefaultReduceScatter:
        _C.unit_fact(unit, UnitFact.REDUCE_BUFFER, [reduce_input])
    buffers = [t for t in (all_reduce_input, partial_output) if t is not None]
    _C.unit_fact(unit, UnitFact.ALL_REDUCE_BUFFER, buffers)
    if partial_output is None:  # else there is no gradient yet
        # A gradient of another dtype than the buffers is a copy.
        dtype = reduce_input.dtype
        views: list[torch.Tensor] = []
        copies: list[torch.Tensor] = []
        for grad in shard_grads_of(parameters):
            (views if grad.dtype == dtype else copies).append(grad)
        if views:
            _C.unit_fact(unit, UnitFact.REDUCED_GRAD, views)
        if copies:
            _C.unit_fact(unit, UnitFact.SHARD_GRAD, copies)
    _C.unit_reduced(unit)


def _in_backward() -> bool:
    return bool(torch._C._current_graph_task_id() != -1)


_FOLDER = "torch.distributed.fsdp._fully_shard"
_MODULE = f"{_FOLDER}._fsdp_param_group"
_GROUP = f"{_MODULE}:FSDPParamGroup"
_PARAMETER = f"{_FOLDER}._fsdp_param:FSDPParam"
_PARAMETER_BIRTHS = {
    "to_sharded_post_forward": UnitFact.POST_FORWARD_SHARD,
    "to_accumulated_grad_if_needed": UnitFact.UNSHARDED_GRAD,
}
_TABLE: list[tuple[str, str, Any]] = [
    ("init", f"{_GROUP}.__init__", _tracked_init),
    ("lazy_init", f"{_GROUP}.lazy_init", _tracked_lazy_init),
    ("unshard", f"{_GROUP}.unshard", _tracked_unshard),
    ("wait_for_unshard", f"{_GROUP}.wait_for_unshard", _tracked_wait_for_unshard),
    ("prefetch_unshard", f"{_GROUP}._prefetch_unshard", _tracked_prefetch_unshard),
    ("pre_forward", f"{_GROUP}.pre_forward", _tracked_pre_forward),
    ("post_forward", f"{_GROUP}.post_forward", _tracked_post_forward),
    ("pre_backward", f"{_GROUP}.pre_backward", _tracked_pre_backward),
    ("post_backward", f"{_GROUP}.post_backward", _tracked_post_backward),
    ("finalize_backward", f"{_GROUP}.finalize_backward", _tracked_finalize_backward),
    ("to_sharded", f"{_GROUP}._to_sharded", _tracked_to_sharded),
    (
        "to_sharded_post_forward",
        f"{_GROUP}._to_sharded_post_forward",
        _tracked_to_sharded_post_forward,
    ),
    ("reset_sharded_param", f"{_PARAMETER}.reset_sharded_param", _tracked_reset_sharded_param),
    ("foreach_reduce", f"{_MODULE}:foreach_reduce", _tracked_foreach_reduce),
    *(
        (key := f"param.{name}", f"{_PARAMETER}.{name}", _with_births(key, fact))
        for name, fact in _PARAMETER_BIRTHS.items()
    ),
]
# What the wrappers, and FSDPMemTracker when it is entered, read in FSDP2's objects.
_READS = [
    Reads(
        _GROUP,
        *("fsdp_params", "modules", "is_unsharded", "is_sharded_post_forward", "reduce_grads"),
        *("_module_fqn", "_training_state", "_all_gather_comm", "_all_gather_result"),
        "_partial_reduce_output",
        *compat_fsdp.GROUP_ATTRIBUTES,
    ),
    Reads(
        _PARAMETER,
        *("sharded_param", "_sharded_param_data", "_sharded_post_forward_param_data"),
        *("all_gather_outputs", "_unsharded_inner_tensors", "_unsharded_param"),
        *("unsharded_accumulated_grad", "_orig_size"),
    ),
    Reads(
        f"{_FOLDER}._fsdp_state:FSDPState",
        "_states_to_forward_prefetch",
        *compat_fsdp.STATE_ATTRIBUTES,
    ),
    Reads(f"{_FOLDER}._fully_shard:FSDPModule", "_get_fsdp_state"),
    Reads(f"{_FOLDER}._fsdp_common:TrainingState", "FORWARD", "PRE_BACKWARD"),
    Reads(f"{_FOLDER}._fsdp_collectives:AllGatherResult", "all_gather_output"),
]
_FOR_FSDP = Installation(
    {key: Patch(place, wrapper, is_named=True) for key, place, wrapper in _TABLE},
    variables=_originals,
    reads=_READS,
)
_FOR_FSDP.check("FSDPMemTracker")

install = _FOR_FSDP.install
uninstall = _FOR_FSDP.uninstall
