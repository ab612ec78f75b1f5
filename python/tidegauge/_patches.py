# SPDX-License-Identifier: BSD-3-Clause
"""The places of torch's Python that we wrap while a tracker is entered, and their restoration.

Each exists once, however many trackers are entered, and is put back when the last one leaves. A
wrapper that somebody has kept meanwhile (a compiled model, another tool's patch on top of ours)
does nothing but call the original once no tracker is entered.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.utils.checkpoint as checkpoint
from torch import nn

from tidegauge import _C

_is_compiling = torch.compiler.is_dynamo_compiling
_enter = _C.module_enter
_leave = _C.module_leave


class _Patch:
    """One attribute of a class of torch's that has a wrapper of ours.

    The wrapper reads `original` (by name, from this module) at each call, so that it keeps its
    identity: dynamo would compile again for another function.
    """

    def __init__(self, owner: type, name: str, wrapper: Any) -> None:
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


def _tracked_call(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
    # Dynamo folds this test away and sees nothing of ours: no graph break, no guard.
    if _is_compiling() or not _enter(self, args, kwargs):
        return _call_module(self, *args, **kwargs)
    try:
        output = _call_module(self, *args, **kwargs)
    except BaseException:
        _leave_after_error(self, args)
        raise
    _leave(self, args, output)
    return output


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


@staticmethod
def _tracked_backward_reentrant(ctx: Any, *args: Any) -> Any:
    _C.begin_recompute(keeps_graph=True)
    try:
        return _backward_reentrant(ctx, *args)
    finally:
        _C.end_recompute()


_call_module: Callable[..., Any] = nn.Module.__call__
_enter_recomputation: Callable[..., Any] = checkpoint._recomputation_hook.__enter__
_exit_recomputation: Callable[..., Any] = checkpoint._recomputation_hook.__exit__
_backward_reentrant: Callable[..., Any] = checkpoint.CheckpointFunction.backward

#: Each with the name of the variable of this module through which its wrapper calls the original.
_PATCHES = {
    "_call_module": _Patch(nn.Module, "__call__", _tracked_call),
    "_enter_recomputation": _Patch(
        checkpoint._recomputation_hook, "__enter__", _tracked_enter_recomputation
    ),
    "_exit_recomputation": _Patch(
        checkpoint._recomputation_hook, "__exit__", _tracked_exit_recomputation
    ),
    "_backward_reentrant": _Patch(
        checkpoint.CheckpointFunction, "backward", _tracked_backward_reentrant
    ),
}

_lock = threading.Lock()
_user_count = 0


def install() -> None:
    """Counts one more user of the patches; the first one puts them in place."""
    global _user_count
    with _lock:
        _user_count += 1
        if _user_count > 1:
            return
        for variable, patch in _PATCHES.items():
            if (original := patch.install()) is not None:
                globals()[variable] = original


def uninstall() -> None:
    """Counts one user less; the last one takes the patches away."""
    global _user_count
    with _lock:
        _user_count -= 1
        if _user_count == 0:
            for patch in _PATCHES.values():
                patch.uninstall()
