# SPDX-License-Identifier: BSD-3-Clause
"""Wrappers that notify trackers when a module runs, forward or recomputed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tidegauge import _C
from tidegauge._torch.containment import describe, warn
from tidegauge._torch.patching import Installation, Patch, Reads, unknown_original

_is_compiling = torch.compiler.is_dynamo_compiling
_enter = _C.module_enter
_leave = _C.module_leave
_TORCHS_CALL = getattr(nn.Module, "_wrapped_call_impl", None)

# The originals that the wrappers call. Each installation sets them again.
_call_module: Callable[..., Any] = unknown_original
_enter_recomputation: Callable[..., Any] = unknown_original
_exit_recomputation: Callable[..., Any] = unknown_original
_backward_reentrant: Callable[..., Any] = unknown_original


def _tracked_call(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
    # Dynamo folds this test away and does not trace our code: no graph break, no guard.
    if _is_compiling() or not _enter(self, args, kwargs):
        return _call_module(self, *args, **kwargs)
    try:
        if _call_module is _TORCHS_CALL and self._compiled_call_impl is None:
            # torch's own function would call this, too. Calling it directly saves a frame.
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


def _leave_after_error(module: nn.Module, args: Any) -> None:
    try:
        _leave(module, args, None)
    except Exception as error:  # from a user's hook; the error of the forward matters more
        warn(
            f"a post_fw_hook raised {describe(error)} while the forward of "
            f"{type(module).__name__} was already failing; the error of the forward is raised"
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


_CHECKPOINT = "torch.utils.checkpoint"
FOR_MODULES = Installation(
    {
        "_call_module": Patch("torch.nn:Module.__call__", _tracked_call),
        "_enter_recomputation": Patch(
            f"{_CHECKPOINT}:_recomputation_hook.__enter__", _tracked_enter_recomputation
        ),
        "_exit_recomputation": Patch(
            f"{_CHECKPOINT}:_recomputation_hook.__exit__", _tracked_exit_recomputation
        ),
        "_backward_reentrant": Patch(
            f"{_CHECKPOINT}:CheckpointFunction.backward", _tracked_backward_reentrant
        ),
    },
    variables=globals(),
    reads=[Reads("torch.nn:Module", "_wrapped_call_impl", "_call_impl", "_compiled_call_impl")],
    feature="ModTracker",
)
