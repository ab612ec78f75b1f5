# SPDX-License-Identifier: BSD-3-Clause
"""The places of FSDP2 that tell a param group's life, wrapped while an FSDPMemTracker is entered.

FSDP2's hooks on modules are bound methods, taken when a module is sharded; but they call the param
groups, and these their parameters, by name. So wrappers on the two classes see everything, also of
models sharded before, and nothing is put on a model. Each hands on plain facts, and decides nothing
(src/sharded/sharded_units.h does).
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.distributed.fsdp._fully_shard import _fsdp_param_group
from torch.distributed.fsdp._fully_shard._fsdp_common import TrainingState
from torch.distributed.fsdp._fully_shard._fsdp_param import FSDPParam
from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup

from tidegauge import _C
from tidegauge._C import ModuleMark, UnitFact
from tidegauge._patches import _Installation, _Patch

_NAMES: dict[type | ModuleType, str] = {
    FSDPParamGroup: "__init__ lazy_init unshard wait_for_unshard _prefetch_unshard pre_forward "
    "post_forward pre_backward post_backward _to_sharded _to_sharded_post_forward",
    FSDPParam: "init_all_gather_outputs init_unsharded_param to_sharded_post_forward "
    "to_accumulated_grad_if_needed reset_sharded_param",
    _fsdp_param_group: "foreach_reduce",
}


def check_names(names: dict[type | ModuleType, str] = _NAMES) -> None:
    """NotImplementedError if this torch has another FSDP2 than the one that we know."""
    missing = [
        f"{owner.__name__}.{name}"
        for owner, all_names in names.items()
        for name in all_names.split()
        if name not in owner.__dict__
    ]
    if missing:
        raise NotImplementedError(
            f"FSDPMemTracker does not know the FSDP2 of torch {torch.__version__}: "
            f"{', '.join(missing)} is not there. Use the torch that tidegauge was made for"
        )


check_names()

_originals: dict[str, Callable[..., Any]] = {}
_units: WeakKeyDictionary[FSDPParamGroup | FSDPParam, int] = WeakKeyDictionary()
_numbers = itertools.count(1)


class _Running(threading.local):
    """What FSDP2 is doing in this thread."""

    def __init__(self) -> None:
        self.prefetches = 0
        # The pre-forward of a module ends with the prefetch of this group.
        self.last_prefetch: tuple[FSDPParamGroup, nn.Module] | None = None


_running = _Running()


def find_unit(group: FSDPParamGroup) -> int:
    """The number of the group, the same for all trackers; its parameters have the same."""
    unit = _units.get(group)
    if unit is None:
        unit = next(_numbers)
        _units[group] = unit
        for parameter in group.fsdp_params:
            _units[parameter] = unit
        _C.unit_made(unit, name_of(group), group.modules)
        _C.unit_fact(unit, UnitFact.SHARD, shards_of(group.fsdp_params))
    return unit


def name_of(group: FSDPParamGroup) -> str:
    """As FSDP2 has it, relative to the root; before the first forward the class of the module."""
    name: str | None = group._module_fqn
    return ", ".join(type(module).__name__ for module in group.modules) if name is None else name


def shards_of(parameters: Sequence[FSDPParam]) -> list[torch.Tensor]:
    return [tensor for p in parameters for tensor in (p.sharded_param, p._sharded_param_data)]


def shard_grads_of(parameters: Sequence[FSDPParam]) -> list[torch.Tensor]:
    return [grad for p in parameters if (grad := p.sharded_param.grad) is not None]


def unsharded_grads_of(parameters: Sequence[FSDPParam]) -> list[torch.Tensor]:
    grads = [p.unsharded_accumulated_grad for p in parameters]
    # Before the first gathering there is no unsharded parameter.
    grads += [p._unsharded_param.grad for p in parameters if hasattr(p, "_unsharded_param")]
    return [grad for grad in grads if grad is not None]


@contextmanager
def _births(unit: int, fact: UnitFact) -> Iterator[None]:
    _C.begin_unit_births(unit, fact)
    try:
        yield
    finally:
        _C.end_unit_births()


def _mark(modules: Sequence[nn.Module], mark: ModuleMark) -> None:
    _C.mark_modules(modules, mark)


# A module may have several groups: they enter the forward in their order, as well as the backward,
# and leave the backward in the reverse order.


def _is_first(group: FSDPParamGroup) -> bool:
    return bool(group._param_group_index == 0)


def _is_last(group: FSDPParamGroup) -> bool:
    return bool(group._param_group_index == group._num_param_groups - 1)


@wraps(FSDPParamGroup.__init__)
def _tracked_init(self: FSDPParamGroup, *args: Any, **kwargs: Any) -> None:
    """A module is sharded while somebody tracks."""
    _originals["init"](self, *args, **kwargs)
    find_unit(self)


@wraps(FSDPParamGroup.lazy_init)
def _tracked_lazy_init(self: FSDPParamGroup) -> None:
    _originals["lazy_init"](self)
    # By now it has the name that it keeps.
    _C.unit_made(find_unit(self), name_of(self), self.modules)


@wraps(FSDPParamGroup.unshard)
def _tracked_unshard(self: FSDPParamGroup, *args: Any, **kwargs: Any) -> Any:
    if self._all_gather_result is not None or self.is_unsharded:
        return _originals["unshard"](self, *args, **kwargs)
    unit = find_unit(self)
    with _births(unit, UnitFact.GATHER_BUFFER):
        result = _originals["unshard"](self, *args, **kwargs)
    if self._all_gather_result is not None:
        _C.unit_gathering(unit, self._training_state.name, _running.prefetches > 0)
    return result


@wraps(FSDPParamGroup.wait_for_unshard)
def _tracked_wait_for_unshard(self: FSDPParamGroup) -> Any:
    if self._all_gather_result is None:
        return _originals["wait_for_unshard"](self)
    unit = find_unit(self)
    with _births(unit, UnitFact.GATHER_BUFFER):
        result = _originals["wait_for_unshard"](self)
    _C.unit_unsharded(unit)
    return result


def _tracked_prefetch_unshard(target: FSDPParamGroup, pass_type: str) -> None:
    _running.prefetches += 1
    try:
        _originals["prefetch_unshard"](target, pass_type)
    finally:
        _running.prefetches -= 1
    if (last := _running.last_prefetch) is not None and last[0] is target:
        _running.last_prefetch = None
        _mark((last[1],), ModuleMark.AFTER_PRE_FORWARD)


@wraps(FSDPParamGroup.pre_forward)
def _tracked_pre_forward(self: FSDPParamGroup, module: nn.Module, *args: Any) -> Any:
    is_entering = self._training_state != TrainingState.FORWARD
    result = _originals["pre_forward"](self, module, *args)
    if _is_last(self) and not _in_backward():
        states = module._get_fsdp_state()._states_to_forward_prefetch if is_entering else []  # type: ignore[operator]
        targets = [group for state in states for group in state._fsdp_param_groups]
        if targets:
            _running.last_prefetch = targets[-1], module
        else:
            _mark((module,), ModuleMark.AFTER_PRE_FORWARD)
    return result


@wraps(FSDPParamGroup.post_forward)
def _tracked_post_forward(self: FSDPParamGroup, module: nn.Module | None, *args: Any) -> Any:
    # No module: the root ends the forward of a group whose modules were not all called.
    if module is not None and _is_first(self) and not _in_backward():
        _mark((module,), ModuleMark.BEFORE_POST_FORWARD)
    return _originals["post_forward"](self, module, *args)


@wraps(FSDPParamGroup.pre_backward)
def _tracked_pre_backward(self: FSDPParamGroup, *args: Any) -> Any:
    if self._training_state == TrainingState.PRE_BACKWARD:
        return _originals["pre_backward"](self, *args)
    if _is_first(self):
        _mark(self.modules, ModuleMark.BEFORE_PRE_BACKWARD)
    result = _originals["pre_backward"](self, *args)
    if _is_last(self):
        _mark(self.modules, ModuleMark.AFTER_PRE_BACKWARD)
    return result


@wraps(FSDPParamGroup.post_backward)
def _tracked_post_backward(self: FSDPParamGroup, *args: Any) -> Any:
    # A list of ours must not outlive this line: it would keep the gradients alive.
    _C.unit_fact(find_unit(self), UnitFact.UNSHARDED_GRAD, unsharded_grads_of(self.fsdp_params))
    if _is_last(self):
        _mark(self.modules, ModuleMark.BEFORE_POST_BACKWARD)
    result = _originals["post_backward"](self, *args)
    if _is_first(self):
        _mark(self.modules, ModuleMark.AFTER_POST_BACKWARD)
    return result


@wraps(FSDPParamGroup._to_sharded)
def _tracked_to_sharded(self: FSDPParamGroup) -> None:
    _originals["to_sharded"](self)
    _C.unit_released(find_unit(self), keeps_post_forward_shard=False)


@wraps(FSDPParamGroup._to_sharded_post_forward)
def _tracked_to_sharded_post_forward(self: FSDPParamGroup) -> None:
    _originals["to_sharded_post_forward"](self)
    _C.unit_released(find_unit(self), keeps_post_forward_shard=True)


def _with_births(name: str, fact: UnitFact, original: Any) -> Callable[..., Any]:
    """Wraps a method of a parameter: all that it makes is `fact`."""

    @wraps(original)
    def tracked(self: FSDPParam, *args: Any) -> Any:
        unit = _units.get(self)
        if unit is None:  # of a group that nobody has told of yet
            return _originals[name](self, *args)
        with _births(unit, fact):
            return _originals[name](self, *args)

    return tracked


@wraps(FSDPParam.reset_sharded_param)
def _tracked_reset_sharded_param(self: FSDPParam) -> None:
    """Shards were exchanged, by load_state_dict or Module.to."""
    _originals["reset_sharded_param"](self)
    if (unit := _units.get(self)) is not None:
        _C.unit_fact(unit, UnitFact.SHARD, shards_of([self]))


@wraps(_fsdp_param_group.foreach_reduce)  # type: ignore[attr-defined]
def _tracked_foreach_reduce(
    fsdp_params: list[FSDPParam],
    unsharded_grads: list[torch.Tensor],
    reduce_scatter_group: Any,
    reduce_scatter_stream: Any,
    reduce_scatter_comm: Any,
    orig_dtype: torch.dtype | None,
    reduce_dtype: torch.dtype | None,
    *args: Any,
    **kwargs: Any,
) -> Any:
    unit = _units[fsdp_params[0]]
    _C.unit_fact(unit, UnitFact.UNSHARDED_GRAD, unsharded_grads)
    buffer_dtype = reduce_dtype or unsharded_grads[0].dtype  # the list is empty afterwards
    with _births(unit, UnitFact.REDUCE_BUFFER):
        result = _originals["foreach_reduce"](
            fsdp_params,
            unsharded_grads,
            reduce_scatter_group,
            reduce_scatter_stream,
            reduce_scatter_comm,
            orig_dtype,
            reduce_dtype,
            *args,
            **kwargs,
        )
    all_reduce_input, partial_reduce_output = result[4], result[6]
    buffers = [t for t in (all_reduce_input, partial_reduce_output) if t is not None]
    _C.unit_fact(unit, UnitFact.ALL_REDUCE_BUFFER, buffers)
    is_cast = orig_dtype is not None and orig_dtype != buffer_dtype
    fact = UnitFact.SHARD_GRAD if is_cast else UnitFact.REDUCED_GRAD
    if partial_reduce_output is None:  # else the gradient is still to come
        _C.unit_fact(unit, fact, shard_grads_of(fsdp_params))
    _C.unit_reduced(unit)
    return result


def _in_backward() -> bool:
    return bool(torch._C._current_graph_task_id() != -1)


_PARAMETER_BIRTHS = {
    "init_all_gather_outputs": UnitFact.UNSHARDED,
    "init_unsharded_param": UnitFact.UNSHARDED,
    "to_sharded_post_forward": UnitFact.POST_FORWARD_SHARD,
    "to_accumulated_grad_if_needed": UnitFact.UNSHARDED_GRAD,
}
_TABLE: list[tuple[str, type | ModuleType, str, Any]] = [
    ("init", FSDPParamGroup, "__init__", _tracked_init),
    ("lazy_init", FSDPParamGroup, "lazy_init", _tracked_lazy_init),
    ("unshard", FSDPParamGroup, "unshard", _tracked_unshard),
    ("wait_for_unshard", FSDPParamGroup, "wait_for_unshard", _tracked_wait_for_unshard),
    (
        "prefetch_unshard",
        FSDPParamGroup,
        "_prefetch_unshard",
        staticmethod(_tracked_prefetch_unshard),
    ),
    ("pre_forward", FSDPParamGroup, "pre_forward", _tracked_pre_forward),
    ("post_forward", FSDPParamGroup, "post_forward", _tracked_post_forward),
    ("pre_backward", FSDPParamGroup, "pre_backward", _tracked_pre_backward),
    ("post_backward", FSDPParamGroup, "post_backward", _tracked_post_backward),
    ("to_sharded", FSDPParamGroup, "_to_sharded", _tracked_to_sharded),
    (
        "to_sharded_post_forward",
        FSDPParamGroup,
        "_to_sharded_post_forward",
        _tracked_to_sharded_post_forward,
    ),
    ("reset_sharded_param", FSDPParam, "reset_sharded_param", _tracked_reset_sharded_param),
    ("foreach_reduce", _fsdp_param_group, "foreach_reduce", _tracked_foreach_reduce),
    *(
        (key := f"param.{name}", FSDPParam, name, _with_births(key, fact, getattr(FSDPParam, name)))
        for name, fact in _PARAMETER_BIRTHS.items()
    ),
]
_FOR_FSDP = _Installation(
    {key: _Patch(owner, name, wrapper) for key, owner, name, wrapper in _TABLE},
    variables=_originals,
)

install = _FOR_FSDP.install
uninstall = _FOR_FSDP.uninstall
