# SPDX-License-Identifier: BSD-3-Clause
"""Runs one scenario under a tracker and logs its answers at each operator and user hook.

`upstream(scenario)` and `ours(scenario)` return the same kind of record, so that a test can compare
them, or state both where they differ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import tidegauge
import torch
from torch import nn
from torch.distributed._tools.mod_tracker import ModTracker as UpstreamModTracker
from torch.utils._python_dispatch import TorchDispatchMode

Tracker = tidegauge.ModTracker | UpstreamModTracker
Scenario = Callable[[], Any]

#: Views and bookkeeping ops, whose number autograd may vary.
_DULL = {"t", "detach", "view", "transpose", "ones_like", "alias", "_unsafe_view", "expand"}


def names(parents: set[str]) -> str:
    """The active modules in one line, "Net Net.fc1"; "-" if there is only "Global"."""
    assert "Global" in parents
    return " ".join(sorted(parents - {"Global"})) or "-"


class OpLog(TorchDispatchMode):
    """Logs "operator: active modules" for each operator of this thread."""

    def __init__(self, tracker: Tracker) -> None:
        super().__init__()
        self.tracker = tracker
        self.forward: list[str] = []
        self.backward: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        op = func.overloadpacket.__name__
        if op not in _DULL:
            lines = self.backward if self.tracker.is_bw else self.forward
            lines.append(f"{op}: {names(self.tracker.parents)}")
        return func(*args, **(kwargs or {}))


@dataclass
class Record:
    """Lines in chronological order; `hooks` as "pre_bw Net.fc1"."""

    forward: list[str] = field(default_factory=list)
    backward: list[str] = field(default_factory=list)
    hooks: list[str] = field(default_factory=list)
    #: "pre_bw Net.fc1: Net Net.fc1", with the active modules
    hooks_within: list[str] = field(default_factory=list)
    at_end: str = ""


class HookLog:
    """Registers the four user hooks of `tracker` and logs their calls."""

    def __init__(self, tracker: Tracker) -> None:
        self.tracker = tracker
        self.calls: list[str] = []
        self.within: list[str] = []
        tracker.register_user_hooks(
            lambda mod, inputs: self._note("pre_fw", mod),
            lambda mod, inputs, outputs: self._note("post_fw", mod),
            lambda mod, grads: self._note("pre_bw", mod),
            lambda mod, grads: self._note("post_bw", mod),
        )

    def _note(self, kind: str, mod: nn.Module | None) -> None:
        name = None if mod is None else self.tracker.get_known_fqn(mod)
        recomputes = kind.endswith("fw") and self.tracker.is_bw
        assert recomputes or self.tracker.is_bw == kind.endswith("bw")
        call = f"{'re-' if recomputes else ''}{kind} {name}"
        self.calls.append(call)
        self.within.append(f"{call}: {names(self.tracker.parents)}")


def observe(tracker: Tracker, scenario: Scenario) -> Record:
    torch.manual_seed(0)
    hooks = HookLog(tracker)
    with tracker, OpLog(tracker) as ops:
        scenario()
    return Record(ops.forward, ops.backward, hooks.calls, hooks.within, names(tracker.parents))


def ours(scenario: Scenario) -> Record:
    return observe(tidegauge.ModTracker(), scenario)


def upstream(scenario: Scenario) -> Record:
    return observe(UpstreamModTracker(), scenario)


def differences(theirs: list[str], mine: list[str]) -> list[tuple[str, str]]:
    """(upstream's line, ours) where they differ; both must have seen the same operators."""
    assert [line.split(":")[0] for line in theirs] == [line.split(":")[0] for line in mine]
    return [pair for pair in zip(theirs, mine, strict=True) if pair[0] != pair[1]]
