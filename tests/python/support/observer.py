# SPDX-License-Identifier: BSD-3-Clause
"""Module states from the counting allocator, by plain hooks and without a tracker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.utils._pytree import tree_leaves


class Source(Protocol):
    def storages(self) -> tuple[int, int]: ...
    def restart_peak(self) -> None: ...


@dataclass
class Call:
    states: dict[str, list[int]]
    suffix: str
    peak_bytes: int


class ModuleObserver:
    """Pre-, Post- and Peak-Forward, the same for recomputes, and Pre-Backward of each call."""

    def __init__(self, source: Source) -> None:
        self.calls: dict[nn.Module, dict[str, list[int]]] = {}
        self._source = source
        self._open: list[Call] = []
        self._handles: list[Any] = []

    def __enter__(self) -> None:
        self._handles = [
            register_module_forward_pre_hook(self._before),
            register_module_forward_hook(self._after, always_call=True),
        ]

    def __exit__(self, *args: object) -> None:
        for handle in self._handles:
            handle.remove()

    def _read(self) -> int:
        """Returns the current bytes and adds the peak since the last reading to all open calls."""
        now, peak = self._source.storages()
        for call in self._open:
            call.peak_bytes = max(call.peak_bytes, peak)
        self._source.restart_peak()
        return now

    def _before(self, module: nn.Module, args: Any) -> None:
        is_recompute = torch._C._current_graph_task_id() != -1
        now = self._read()
        call = Call(self.calls.setdefault(module, {}), "-AC" if is_recompute else "", now)
        call.states.setdefault(f"Pre-Forward{call.suffix}", []).append(now)
        self._open.append(call)

    def _after(self, module: nn.Module, args: Any, output: Any) -> None:
        now = self._read()
        call = self._open.pop()
        call.states.setdefault(f"Post-Forward{call.suffix}", []).append(now)
        if not call.suffix:
            call.states.setdefault("Peak-Forward", []).append(call.peak_bytes)
        self._watch_backward(call.states, output)  # for a recompute only if it is reentrant

    def _watch_backward(self, states: dict[str, list[int]], output: Any) -> None:
        """The backward of the call begins with the first gradient of an output."""
        seen: set[int] = set()

        def on_gradient(_: torch.Tensor) -> None:
            task = torch._C._current_graph_task_id()
            if task not in seen:
                seen.add(task)
                states.setdefault("Pre-Backward", []).append(self._read())

        hook: Callable[[torch.Tensor], None] = on_gradient
        for tensor in tree_leaves(output):
            if isinstance(tensor, torch.Tensor) and tensor.requires_grad:
                tensor.register_hook(hook)
