# SPDX-License-Identifier: BSD-3-Clause
"""The places of torch's Python that we wrap while a tracker is entered, and their restoration.

Each exists once, however many trackers are entered, and is put back when the last one leaves. A
wrapper that somebody has kept meanwhile (a compiled model, another tool's patch on top of ours)
does nothing but call the original once no tracker is entered.
"""

from __future__ import annotations

import threading
import warnings
import weakref
from collections.abc import Callable, Sequence
from functools import wraps
from types import ModuleType
from typing import Any

import torch
import torch.utils.checkpoint as checkpoint
from torch import nn, optim
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.meta_utils import MetaConverter
from torch.autograd.profiler import record_function
from torch.nn.modules.module import (
    register_module_buffer_registration_hook,
    register_module_parameter_registration_hook,
)
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.hooks import RemovableHandle

from tidegauge import _C
from tidegauge._late_patches import LatePatches, Patches

_is_compiling = torch.compiler.is_dynamo_compiling
_enter = _C.module_enter
_leave = _C.module_leave
_TORCHS_CALL = nn.Module._wrapped_call_impl


class _Patch:
    """One attribute of a class of torch's that has a wrapper of ours.

    The wrapper reads `original` (by name, from this module) at each call, so that it keeps its
    identity: dynamo would compile again for another function.
    """

    def __init__(self, owner: type | ModuleType, name: str, wrapper: Any) -> None:
        self._owner = owner
        self._name = name
        self._wrapper = wrapper
        self._own_attribute: Any = None  # what the class itself had; None: inherited
        self._is_below_another = False

    def install(self) -> Callable[..., Any] | None:
        """Puts the wrapper in place and returns what it has to call; None if it is there still."""
        current = self._current()
        if current is self._wrapper:
            return None
        if self._is_below_another and current is not self._own_attribute:
            return None  # somebody's patch that calls ours; not so if they put back what was first
        self._own_attribute = self._owner.__dict__.get(self._name)
        original: Callable[..., Any] = getattr(self._owner, self._name)
        setattr(self._owner, self._name, self._wrapper)
        return original

    def uninstall(self) -> None:
        self._is_below_another = self._current() is not self._wrapper
        if self._is_below_another:
            return  # a later patch of somebody else's calls ours: taking it out would undo theirs
        if self._own_attribute is None:
            delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, self._own_attribute)

    def _current(self) -> Any:
        return self._owner.__dict__.get(self._name)


class _GlobalHook:
    """One of torch's hooks that are common to all modules or optimizers.

    It has the same key each time, so that dynamo sees two states at most: with it and without.
    """

    def __init__(
        self, register: Callable[[Callable[..., Any]], RemovableHandle], hook: Callable[..., None]
    ) -> None:
        self._register = register
        self._hook = hook
        self._handle: RemovableHandle | None = None

    def install(self) -> None:
        if self._handle is None:
            self._handle = self._register(self._hook)
        elif (hooks := self._handle.hooks_dict_ref()) is not None:
            hooks[self._handle.id] = self._hook

    def uninstall(self) -> None:
        if self._handle is not None:
            self._handle.remove()


# What the wrappers call; an installation renews them.
_call_module: Callable[..., Any] = nn.Module.__call__
_enter_recomputation: Callable[..., Any] = checkpoint._recomputation_hook.__enter__
_exit_recomputation: Callable[..., Any] = checkpoint._recomputation_hook.__exit__
_backward_reentrant: Callable[..., Any] = checkpoint.CheckpointFunction.backward
_setstate: Callable[..., Any] = nn.Module.__setstate__
_bootstrap: Callable[..., Any] = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]
_compiled_region: Callable[..., Any] = torch._C._ForceDispatchKeyGuard
_resize: Callable[..., Any] = torch.UntypedStorage.resize_
_swap: Callable[..., Any] = torch.UntypedStorage._swap_data_ptr_  # type: ignore[attr-defined]
_exit_profiled: Callable[..., Any] = record_function.__exit__
_get_rng_state: Callable[..., torch.Tensor] = torch.random.get_rng_state
_enter_fake_mode: Callable[..., Any] = FakeTensorMode.__enter__
_run_backward: Callable[..., Any] = torch.autograd._engine_run_backward  # type: ignore[attr-defined]
_exit_inference_mode: Callable[..., Any] = torch._C._InferenceMode.__exit__
_convert_to_meta: Callable[..., Any] = MetaConverter.__call__

_key_extractor: Callable[..., Any] = torch._ops.key_extractor
_OUR_KEY = torch._C._parse_dispatch_key("Fake")


def _tracked_call(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
    # Dynamo folds this test away and sees nothing of ours: no graph break, no guard.
    if _is_compiling() or not _enter(self, args, kwargs):
        return _call_module(self, *args, **kwargs)
    try:
        if _call_module is _TORCHS_CALL and self._compiled_call_impl is None:
            # All that torch's does then; a frame less.
            output = self._call_impl(*args, **kwargs)  # type: ignore[no-untyped-call]
        else:
            output = _call_module(self, *args, **kwargs)
            if self._compiled_call_impl is not None:
                _C.compiled_module_called(self, output)
    except BaseException:
        _leave_after_error(self, args)
        raise
    _leave(self, args, output)
    return output


def _tracked_setstate(self: nn.Module, state: Any) -> None:
    """A module that is copied or unpickled registers nothing."""
    _setstate(self, state)
    _C.module_restored(self)


def _tracked_bootstrap(self: threading.Thread) -> None:
    """A thread that is started while somebody tracks is tracked as long as it runs."""
    _C.attach_thread()
    try:
        _bootstrap(self)
    finally:
        _C.detach_thread()


def _tracked_exit_inference_mode(self: Any, *args: Any) -> Any:
    """It puts back the keys of the thread from before the mode, and so from before us, maybe.

    On the class of C++'s, because a `with` has looked up `inference_mode.__exit__` at its begin.
    """
    try:
        return _exit_inference_mode(self, *args)
    finally:
        _C.watch_thread_again()


def _leave_after_error(module: nn.Module, args: Any) -> None:
    try:
        _leave(module, args, None)
    except Exception as error:  # a user's hook; the error of the forward is the one to see
        warnings.warn(
            f"a post_fw_hook raised {error!r} while the forward of {type(module).__name__} was "
            "already failing; the error of the forward goes on",
            stacklevel=3,
        )


def _tracked_enter_recomputation(self: Any) -> Any:
    _C.begin_recompute(keeps_graph=False)
    try:
        return _enter_recomputation(self)
    except BaseException:
        _C.end_recompute()
        raise


def _tracked_exit_recomputation(self: Any, *args: Any) -> Any:
    try:
        return _exit_recomputation(self, *args)
    finally:
        _C.end_recompute()


def _tracked_backward_reentrant(ctx: Any, *args: Any) -> Any:
    _C.begin_recompute(keeps_graph=True)
    try:
        return _backward_reentrant(ctx, *args)
    finally:
        _C.end_recompute()


@wraps(_resize)
def _tracked_resize(self: torch.UntypedStorage, *args: Any) -> Any:
    _C.before_resize(self)
    try:
        return _resize(self, *args)
    except RuntimeError as error:
        _C.allocation_failed(str(error))
        raise
    finally:
        _C.after_resize(self)


@wraps(_swap)
def _tracked_swap(self: torch.UntypedStorage, other: torch.UntypedStorage) -> Any:
    _C.before_resize(self)
    _C.before_resize(other)
    try:
        return _swap(self, other)
    finally:
        _C.after_resize(other)
        _C.after_resize(self)


@wraps(_get_rng_state)
def _tracked_get_rng_state() -> torch.Tensor:
    """Checkpoints keep the state of the generator, which is made past the dispatcher."""
    state = _get_rng_state()
    if not _is_compiling():
        _C.tensor_made(state)
    return state


@wraps(_enter_fake_mode)
def _tracked_enter_fake_mode(self: FakeTensorMode) -> Any:
    """What it computes on meta is no memory, whether a tracker counts the mode or not."""
    _C.enter_fake_mode()
    return _enter_fake_mode(self)


@wraps(_convert_to_meta)
def _tracked_convert_to_meta(self: Any, *args: Any, **kwargs: Any) -> Any:
    """A fake is made of a tensor, by torch.export for one: what it has on meta is no memory."""
    with _C.UnseenRegion():
        return _convert_to_meta(self, *args, **kwargs)


@wraps(_run_backward)
def _tracked_run_backward(outputs: Any, *args: Any, **kwargs: Any) -> Any:
    """`torch.autograd.grad` hands gradients over without the node that accumulates them."""
    if not _is_compiling():
        _C.watch_thread_again()  # the threads of the engine take over the keys of this one
    grads = _run_backward(outputs, *args, **kwargs)
    if not _is_compiling() and not kwargs.get("accumulate_grad", False):
        _C.gradients_made(args[3], grads)
    return grads


# The hooks are Python functions with a test that dynamo folds away: it does not trace into C++.


def _parameter_registered(module: nn.Module, name: str, parameter: Any) -> None:
    if not _is_compiling():
        _C.parameter_registered(module, name, parameter)


def _buffer_registered(module: nn.Module, name: str, buffer: Any) -> None:
    if not _is_compiling():
        _C.buffer_registered(module, name, buffer)


def _extract_keys(tensors: Any, key_mask: Any) -> Any:
    """Ops of higher order run by the keys that they know, and ours is none of them."""
    return _key_extractor(tensors, key_mask).remove(_OUR_KEY)


class _RunningSteps(threading.local):
    """The optimizers whose `step` runs in this thread, the innermost last."""

    def __init__(self) -> None:
        self.optimizers: list[weakref.ref[optim.Optimizer]] = []


def _begin_step(optimizer: optim.Optimizer, args: Any, kwargs: Any) -> None:
    if not _is_compiling():
        _running_steps.optimizers.append(weakref.ref(optimizer))
        _C.optimizer_step_begin(optimizer)


def _end_step(optimizer: optim.Optimizer, args: Any, kwargs: Any) -> None:
    if not _is_compiling() and (running := _running_steps.optimizers):
        running.pop()
        _C.optimizer_step_end(optimizer)


# `wraps` leads TorchScript, which compiles this class, to the source of the original.
@wraps(_exit_profiled)
def _tracked_exit_profiled(self: Any, exc_type: Any, exc_value: Any, traceback: Any) -> Any:
    if exc_type is not None and self.name.startswith("Optimizer.step#"):
        _end_failed_step(self.name)
    return _exit_profiled(self, exc_type, exc_value, traceback)


def _end_failed_step(profiled_name: str) -> None:
    """The post-hook is not told of a step that raises, but the profiler is."""
    running = _running_steps.optimizers
    optimizer = running[-1]() if running else None
    if optimizer and profiled_name == f"Optimizer.step#{type(optimizer).__name__}.step":
        _end_step(optimizer, (), {})


def _end_running_steps() -> None:
    """A tracker is left within a step, of whose end nobody will tell."""
    while running := _running_steps.optimizers:
        if (optimizer := running[-1]()) is not None:
            _C.optimizer_step_end(optimizer)
        running.pop()


_running_steps = _RunningSteps()


class _Installation:
    """Patches and global hooks that are in place as long as anybody uses them.

    A patch comes with the name of the variable of this module (or the key of `variables`) by which
    it calls the original. `needs`: what has to be in place as well.
    """

    _lock = threading.Lock()

    def __init__(
        self,
        patches: dict[str, _Patch],
        hooks: Sequence[_GlobalHook] = (),
        at_end: Callable[[], None] = lambda: None,
        variables: dict[str, Any] | None = None,
        needs: _Installation | None = None,
    ) -> None:
        self._variables = globals() if variables is None else variables
        self._patches = patches
        self._hooks = hooks
        self._at_end = at_end
        self._needs = needs
        self._user_count = 0

    def install(self) -> None:
        """Counts one more user; the first one finds all put in place."""
        if self._needs is not None:
            self._needs.install()
        with self._lock:
            self._user_count += 1
            if self._user_count > 1:
                return
            for variable, patch in self._patches.items():
                if (original := patch.install()) is not None:
                    self._variables[variable] = original
            for hook in self._hooks:
                hook.install()

    def uninstall(self) -> None:
        """Counts one user less; after the last one all is as it was."""
        with self._lock:
            self._user_count -= 1
            if self._user_count == 0:
                self._take_out()
        if self._needs is not None:
            self._needs.uninstall()

    def _take_out(self) -> None:
        for hook in self._hooks:
            hook.uninstall()
        for patch in self._patches.values():
            patch.uninstall()
        self._at_end()


_FOR_MODULES = _Installation(
    {
        "_call_module": _Patch(nn.Module, "__call__", _tracked_call),
        "_enter_recomputation": _Patch(
            checkpoint._recomputation_hook, "__enter__", _tracked_enter_recomputation
        ),
        "_exit_recomputation": _Patch(
            checkpoint._recomputation_hook, "__exit__", _tracked_exit_recomputation
        ),
        "_backward_reentrant": _Patch(
            checkpoint.CheckpointFunction, "backward", staticmethod(_tracked_backward_reentrant)
        ),
    }
)
# Of threads whose ops are seen.
FOR_THREADS = _Installation(
    {
        "_exit_inference_mode": _Patch(
            torch._C._InferenceMode, "__exit__", _tracked_exit_inference_mode
        ),
    }
)
# Of trackers of memory, and of simulations.
FOR_OPS = _Installation(
    {
        "_key_extractor": _Patch(torch._ops, "key_extractor", _extract_keys),
        "_bootstrap": _Patch(threading.Thread, "_bootstrap_inner", _tracked_bootstrap),
    },
    needs=FOR_THREADS,
)
_FOR_MEMORY = _Installation(
    {
        "_setstate": _Patch(nn.Module, "__setstate__", _tracked_setstate),
        "_compiled_region": _Patch(torch._C, "_ForceDispatchKeyGuard", _C.CompiledRegion),
        "_resize": _Patch(torch.UntypedStorage, "resize_", _tracked_resize),
        "_swap": _Patch(torch.UntypedStorage, "_swap_data_ptr_", _tracked_swap),
        "_exit_profiled": _Patch(record_function, "__exit__", _tracked_exit_profiled),
        "_get_rng_state": _Patch(torch.random, "get_rng_state", _tracked_get_rng_state),
        "_same_get_rng_state": _Patch(torch, "get_rng_state", _tracked_get_rng_state),
        "_enter_fake_mode": _Patch(FakeTensorMode, "__enter__", _tracked_enter_fake_mode),
        "_convert_to_meta": _Patch(MetaConverter, "__call__", _tracked_convert_to_meta),
        "_run_backward": _Patch(torch.autograd, "_engine_run_backward", _tracked_run_backward),
    },
    [
        _GlobalHook(register_optimizer_step_pre_hook, _begin_step),
        _GlobalHook(register_optimizer_step_post_hook, _end_step),
        _GlobalHook(register_module_parameter_registration_hook, _parameter_registered),
        _GlobalHook(register_module_buffer_registration_hook, _buffer_registered),
    ],
    _end_running_steps,
)


def _load_dtensor_patches() -> Patches:
    from tidegauge import _dtensor_patches

    return _dtensor_patches


_FOR_DTENSOR = LatePatches("torch.distributed.tensor._sharding_prop", _load_dtensor_patches)

install = _FOR_MODULES.install
uninstall = _FOR_MODULES.uninstall


def install_for_memory() -> None:
    FOR_OPS.install()
    _FOR_MEMORY.install()
    _FOR_DTENSOR.install()


def uninstall_for_memory() -> None:
    _FOR_DTENSOR.uninstall()
    _FOR_MEMORY.uninstall()
    FOR_OPS.uninstall()
