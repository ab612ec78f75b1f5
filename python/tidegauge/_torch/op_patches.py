# SPDX-License-Identifier: BSD-3-Clause
"""Wrappers that make trackers observe new threads and all ops."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

from tidegauge import _C
from tidegauge._torch.containment import contained
from tidegauge._torch.patching import Installation, Patch, unknown_original

# The originals that the wrappers call. Each installation sets them again.
_bootstrap: Callable[..., Any] = unknown_original
_exit_inference_mode: Callable[..., Any] = unknown_original
_key_extractor: Callable[..., Any] = unknown_original
_OUR_KEYS = [torch._C._parse_dispatch_key(name) for name in _C.dispatch_keys()]


def _tracked_bootstrap(self: threading.Thread) -> None:
    """Tracks a thread that starts while a tracker is entered, until the thread ends."""
    _attach()
    try:
        _bootstrap(self)
    finally:
        _detach()


@contained
def _attach() -> None:
    _C.attach_thread()


@contained
def _detach() -> None:
    _C.detach_thread()


def _tracked_exit_inference_mode(self: Any, *args: Any) -> Any:
    """Adds our dispatch key again if the end of inference mode has removed it.

    The patch is on the C++ class, because a `with` statement looks up `inference_mode.__exit__`
    when it begins, which may be before the patch.
    """
    try:
        return _exit_inference_mode(self, *args)
    finally:
        _C.watch_thread_again()


def _extract_keys(tensors: Any, key_mask: Any) -> Any:
    """Hides our dispatch keys from higher-order ops, which accept only a fixed set of keys."""
    keys = _key_extractor(tensors, key_mask)
    for key in _OUR_KEYS:
        keys = keys.remove(key)
    return keys


# For threads whose ops are observed.
FOR_THREADS = Installation(
    {
        "_exit_inference_mode": Patch(
            "torch._C:_InferenceMode.__exit__", _tracked_exit_inference_mode
        ),
    },
    variables=globals(),
    feature="tracking of threads",
)
# For memory trackers and simulations.
FOR_OPS = Installation(
    {
        "_key_extractor": Patch("torch._ops:key_extractor", _extract_keys),
        "_bootstrap": Patch("threading:Thread._bootstrap_inner", _tracked_bootstrap),
    },
    variables=globals(),
    needs=FOR_THREADS,
    feature="tracking of ops",
)
