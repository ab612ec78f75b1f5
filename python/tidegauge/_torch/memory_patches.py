# SPDX-License-Identifier: BSD-3-Clause
"""Wrappers and hooks that notify memory trackers of events that the dispatcher does not show:
resized storages, registered parameters, gradients of `torch.autograd.grad`, optimizer steps, ...
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import nn, optim

from tidegauge import _C
from tidegauge._torch.compat import find_compiled_calls
from tidegauge._torch.containment import contained
from tidegauge._torch.late_patches import LatePatches, Patches
from tidegauge._torch.op_patches import FOR_OPS
from tidegauge._torch.patching import GlobalHook, Installation, Patch, unknown_original

_is_compiling = torch.compiler.is_dynamo_compiling


# The originals that the wrappers call. Each installation sets them again.
_setstate: Callable[..., Any] = unknown_original
_resize: Callable[..., Any] = unknown_original
_swap: Callable[..., Any] = unknown_original
_exit_profiled: Callable[..., Any] = unknown_original
_get_rng_state: Callable[..., torch.Tensor] = unknown_original
_enter_fake_mode: Callable[..., Any] = unknown_original
_run_backward: Callable[..., Any] = unknown_original
_convert_to_meta: Callable[..., Any] = unknown_original
_init_ddp: Callable[..., Any] = unknown_original
_ddp_pre_forward: Callable[..., Any] = unknown_original


def _tracked_setstate(self: nn.Module, state: Any) -> None:
    """Needed because a module that is copied or unpickled calls no registration hook."""
    _setstate(self, state)
    _C.module_restored(self)


def _tracked_resize(self: torch.UntypedStorage, *args: Any) -> Any:
    _C.before_resize(self)
    try:
        return _resize(self, *args)
    except RuntimeError as error:
        _C.allocation_failed(error)
        raise
    finally:
        _C.after_resize(self)


def _tracked_swap(self: torch.UntypedStorage, other: torch.UntypedStorage) -> Any:
    _C.before_resize(self)
    _C.before_resize(other)
    try:
        return _swap(self, other)
    finally:
        _C.after_resize(other)
        _C.after_resize(self)


def _tracked_get_rng_state() -> torch.Tensor:
    """Observes the generator state that checkpoints keep: torch makes it without the dispatcher."""
    state = _get_rng_state()
    if not _is_compiling():
        _C.tensor_made(state)
    return state


def _tracked_enter_fake_mode(self: Any) -> Any:
    """Hides the meta tensors of the mode, which use no memory, even if its fakes are counted."""
    _C.enter_fake_mode()
    return _enter_fake_mode(self)


def _tracked_init_ddp(self: Any, *args: Any, **kwargs: Any) -> Any:
    result = _init_ddp(self, *args, **kwargs)
    _notify_buckets(self)
    return result


def _tracked_ddp_pre_forward(self: Any, *inputs: Any, **kwargs: Any) -> Any:
    """DDP allocates its buckets again before the second forward."""
    result = _ddp_pre_forward(self, *inputs, **kwargs)
    if not _is_compiling():
        _notify_buckets(self)
    return result


@contained
def _notify_buckets(ddp: Any) -> None:
    if (reducer := getattr(ddp, "reducer", None)) is not None:
        _C.gradient_buckets_made(reducer)


def _tracked_convert_to_meta(self: Any, *args: Any, **kwargs: Any) -> Any:
    """Hides the meta tensors with which torch.export makes fake tensors: they use no memory."""
    with _C.UnseenRegion():
        return _convert_to_meta(self, *args, **kwargs)


def _tracked_run_backward(t_outputs: Any, *args: Any, **kwargs: Any) -> Any:
    """`torch.autograd.grad` returns gradients without running an AccumulateGrad node."""
    if not _is_compiling():
        _C.watch_thread_again()  # the engine's threads inherit the keys of this one
    grads = _run_backward(t_outputs, *args, **kwargs)
    if not _is_compiling() and not kwargs.get("accumulate_grad", False):
        _notify_gradients(args, grads)
    return grads


@contained
def _notify_gradients(args: Any, grads: Any) -> None:
    _C.gradients_made(args[3], grads)


# Python functions with a test that dynamo folds away, because dynamo cannot trace into C++.


def _parameter_registered(module: nn.Module, name: str, parameter: Any) -> None:
    if not _is_compiling():
        _C.parameter_registered(module, name, parameter)


def _buffer_registered(module: nn.Module, name: str, buffer: Any) -> None:
    if not _is_compiling():
        _C.buffer_registered(module, name, buffer)


class _RunningSteps(threading.local):
    """The optimizers whose `step` runs in this thread, innermost last."""

    def __init__(self) -> None:
        self.optimizers: list[weakref.ref[optim.Optimizer]] = []


def _begin_step(optimizer: optim.Optimizer, args: Any, kwargs: Any) -> Any:
    if _is_compiling():
        return None
    _notify_step_begin(optimizer)
    return _with_tracked_closure(args, kwargs)


def _end_step(optimizer: optim.Optimizer, args: Any, kwargs: Any) -> None:
    if not _is_compiling():
        _notify_step_end(optimizer)


@contained
def _with_tracked_closure(args: Any, kwargs: Any) -> tuple[Any, Any] | None:
    """The arguments of `step`; None if they have no closure."""
    if len(args) > 1 and callable(args[1]):
        return (args[0], _track_closure(args[1]), *args[2:]), kwargs
    if callable(kwargs.get("closure")):
        return args, {**kwargs, "closure": _track_closure(kwargs["closure"])}
    return None


def _track_closure(closure: Callable[..., Any]) -> Callable[..., Any]:
    """What a closure allocates is not part of the optimizer step that calls it."""

    @functools.wraps(closure)
    def tracked(*args: Any, **kwargs: Any) -> Any:
        _C.begin_closure()
        try:
            return closure(*args, **kwargs)
        finally:
            _C.end_closure()

    return tracked


@contained
def _notify_step_begin(optimizer: optim.Optimizer) -> None:
    _running_steps.optimizers.append(weakref.ref(optimizer))
    _C.optimizer_step_begin(optimizer)


@contained
def _notify_step_end(optimizer: optim.Optimizer) -> None:
    if running := _running_steps.optimizers:
        running.pop()
        _C.optimizer_step_end(optimizer)


# TorchScript compiles this class: `is_named` leads it to the source of the original.
def _tracked_exit_profiled(self: Any, exc_type: Any, exc_value: Any, traceback: Any) -> Any:
    if exc_type is not None:
        _end_failed_step(self)
    return _exit_profiled(self, exc_type, exc_value, traceback)


@contained
def _end_failed_step(profiled: Any) -> None:
    """Ends a step that raises: torch calls no post-hook then, but exits the profiler's record."""
    running = _running_steps.optimizers
    optimizer = running[-1]() if running else None
    if optimizer is None:
        return
    if profiled.name == f"Optimizer.step#{type(optimizer).__name__}.step":
        _notify_step_end(optimizer)


def _end_running_steps() -> None:
    """Ends the steps in which a tracker is exited, because torch will not report their end."""
    while running := _running_steps.optimizers:
        if (optimizer := running[-1]()) is not None:
            _C.optimizer_step_end(optimizer)
        running.pop()


_running_steps = _RunningSteps()


def _compiled_call_patches() -> dict[str, Patch]:
    """The functions that torch calls before and after compiled code, if it has no guard there."""
    if (found := find_compiled_calls()) is None:
        return {}
    module, *names = found
    originals: list[Any] = [getattr(import_module(module), name, None) for name in names]
    has_all = all(originals)  # otherwise the check of the patches says what is missing
    wrappers = _C.wrap_compiled_calls(*originals) if has_all else originals
    patches = (Patch(f"{module}:{name}", w) for name, w in zip(names, wrappers, strict=True))
    return dict(zip(("_before_compiled", "_after_compiled"), patches, strict=True))


def _named(place: str, wrapper: Any) -> Patch:
    return Patch(place, wrapper, is_named=True)


_MODULES = "torch.nn.modules.module"
_OPTIMIZERS = "torch.optim.optimizer"
_DDP = "torch.nn.parallel:DistributedDataParallel"
FOR_MEMORY = Installation(
    {
        "_setstate": Patch("torch.nn:Module.__setstate__", _tracked_setstate),
        "_compiled_region": Patch("torch._C:_ForceDispatchKeyGuard", _C.CompiledCall),
        "_resize": _named("torch:UntypedStorage.resize_", _tracked_resize),
        "_swap": _named("torch:UntypedStorage._swap_data_ptr_", _tracked_swap),
        "_exit_profiled": _named(
            "torch.autograd.profiler:record_function.__exit__", _tracked_exit_profiled
        ),
        "_get_rng_state": _named("torch.random:get_rng_state", _tracked_get_rng_state),
        "_same_get_rng_state": _named("torch:get_rng_state", _tracked_get_rng_state),
        "_enter_fake_mode": _named(
            "torch._subclasses.fake_tensor:FakeTensorMode.__enter__", _tracked_enter_fake_mode
        ),
        "_convert_to_meta": _named(
            "torch._subclasses.meta_utils:MetaConverter.__call__", _tracked_convert_to_meta
        ),
        "_run_backward": _named("torch.autograd:_engine_run_backward", _tracked_run_backward),
        "_init_ddp": _named(f"{_DDP}._ddp_init_helper", _tracked_init_ddp),
        "_ddp_pre_forward": _named(f"{_DDP}._pre_forward", _tracked_ddp_pre_forward),
        **_compiled_call_patches(),
    },
    globals(),
    [
        GlobalHook(f"{_OPTIMIZERS}:register_optimizer_step_pre_hook", _begin_step),
        GlobalHook(f"{_OPTIMIZERS}:register_optimizer_step_post_hook", _end_step),
        GlobalHook(
            f"{_MODULES}:register_module_parameter_registration_hook", _parameter_registered
        ),
        GlobalHook(f"{_MODULES}:register_module_buffer_registration_hook", _buffer_registered),
    ],
    _end_running_steps,
    feature="MemTracker",
)


def _load_dtensor_patches() -> Patches:
    from tidegauge._torch import dtensor_patches

    return dtensor_patches


_FOR_DTENSOR = LatePatches("torch.distributed.tensor._sharding_prop", _load_dtensor_patches)


def install(user: object) -> None:
    for each in (FOR_OPS, FOR_MEMORY, _FOR_DTENSOR):
        each.install(user)


def note_problems() -> None:
    """Call when a tracker has started: its trace reports what could not be patched."""
    _FOR_DTENSOR.note_problem()


def uninstall(user: object) -> None:
    for each in (_FOR_DTENSOR, FOR_MEMORY, FOR_OPS):
        each.uninstall(user)
