# SPDX-License-Identifier: BSD-3-Clause
"""The places of torch's Python that decide which threads and ops are seen."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

from tidegauge import _C
from tidegauge._torch.patching import Installation, Patch

# What the wrappers call; an installation renews them.
_bootstrap: Callable[..., Any] = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]
_exit_inference_mode: Callable[..., Any] = torch._C._InferenceMode.__exit__
_key_extractor: Callable[..., Any] = torch._ops.key_extractor
_OUR_KEY = torch._C._parse_dispatch_key("Fake")


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


def _extract_keys(tensors: Any, key_mask: Any) -> Any:
    """Ops of higher order run by the keys that they know, and ours is none of them."""
    return _key_extractor(tensors, key_mask).remove(_OUR_KEY)


# Of threads whose ops are seen.
FOR_THREADS = Installation(
    {
        "_exit_inference_mode": Patch(
            torch._C._InferenceMode, "__exit__", _tracked_exit_inference_mode
        ),
    },
    variables=globals(),
)
# Of trackers of memory, and of simulations.
FOR_OPS = Installation(
    {
        "_key_extractor": Patch(torch._ops, "key_extractor", _extract_keys),
        "_bootstrap": Patch(threading.Thread, "_bootstrap_inner", _tracked_bootstrap),
    },
    variables=globals(),
    needs=FOR_THREADS,
)
