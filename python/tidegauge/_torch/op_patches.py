# SPDX-License-Identifier: BSD-3-Clause
"""Wrappers that keep new threads and all ops observed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

from tidegauge import _C
from tidegauge._torch.patching import Installation, Patch

# The originals that the wrappers call; each installation sets them anew.
_bootstrap: Callable[..., Any] = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]
_exit_inference_mode: Callable[..., Any] = torch._C._InferenceMode.__exit__
_key_extractor: Callable[..., Any] = torch._ops.key_extractor
_OUR_KEY = torch._C._parse_dispatch_key("Fake")


def _tracked_bootstrap(self: threading.Thread) -> None:
    """A thread that starts while a tracker is entered is tracked as long as it runs."""
    _C.attach_thread()
    try:
        _bootstrap(self)
    finally:
        _C.detach_thread()


def _tracked_exit_inference_mode(self: Any, *args: Any) -> Any:
    """The end of inference mode restores older dispatch keys of the thread, maybe without ours.

    The patch is on the C++ class: a `with` looks up `inference_mode.__exit__` when it begins.
    """
    try:
        return _exit_inference_mode(self, *args)
    finally:
        _C.watch_thread_again()


def _extract_keys(tensors: Any, key_mask: Any) -> Any:
    """Higher-order ops know a fixed set of dispatch keys, and ours is not among them."""
    return _key_extractor(tensors, key_mask).remove(_OUR_KEY)


# For threads whose ops are observed.
FOR_THREADS = Installation(
    {
        "_exit_inference_mode": Patch(
            torch._C._InferenceMode, "__exit__", _tracked_exit_inference_mode
        ),
    },
    variables=globals(),
)
# For memory trackers and simulations.
FOR_OPS = Installation(
    {
        "_key_extractor": Patch(torch._ops, "key_extractor", _extract_keys),
        "_bootstrap": Patch(threading.Thread, "_bootstrap_inner", _tracked_bootstrap),
    },
    variables=globals(),
    needs=FOR_THREADS,
)
