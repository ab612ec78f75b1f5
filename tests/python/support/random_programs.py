# SPDX-License-Identifier: BSD-3-Clause
"""Random programs: the tracked bytes always equal those of the live storages.

Three sources must agree after every line of the program: the tracker, the counting allocator, and a
walk over all tensors of the program and the autograd graph behind them.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterable
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from counting import counting
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from runs import CATEGORIES
from torch import nn
from torch.utils.checkpoint import checkpoint
from tracked import now, peak, track

SIZES = st.sampled_from([0, 1, 6, 24, 120])
WHICH = st.integers(0, 1000)


def storages_behind(tensors: Iterable[torch.Tensor]) -> dict[int, int]:
    """Storage address -> bytes, of the tensors, their gradients and tensors saved by autograd."""
    found: dict[int, int] = {}
    nodes: list[Any] = []
    seen = set()

    def add(tensor: Any) -> None:
        if isinstance(tensor, torch.Tensor):
            storage = tensor.untyped_storage()
            found[storage._cdata] = storage.nbytes()
            if tensor.grad_fn is not None:
                nodes.append(tensor.grad_fn)
            elif tensor.grad is not None:
                add(tensor.grad)

    for tensor in tensors:
        add(tensor)
    while nodes:
        node = nodes.pop()
        if node in seen:
            continue
        seen.add(node)
        nodes += [parent for parent, _ in node.next_functions if parent is not None]
        for name in dir(node):
            if name.startswith("_saved_"):
                try:
                    saved = getattr(node, name)
                except RuntimeError:  # freed by a backward
                    continue
                for value in saved if isinstance(saved, tuple) else (saved,):
                    add(value)
        add(getattr(node, "variable", None))
    return found


class Program(RuleBasedStateMachine):
    """The possible lines of a random program."""

    has_channel = False

    def __init__(self) -> None:
        super().__init__()
        gc.collect()
        gc.disable()
        self.counting = counting()
        self.allocator = self.counting.__enter__()
        self.base_bytes = self.live_bytes()
        self.model = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.tensors: list[torch.Tensor] = []
        self.tracker = track(self.model, self.optimizer, allocator=self.has_channel)
        self.tracker.__enter__()
        self.is_tracking = True

    def live_bytes(self) -> int:
        counts = self.allocator.read()
        return counts.live_bytes if self.has_channel else counts.storage_bytes

    def pick(self, which: int) -> torch.Tensor:
        return self.tensors[which % len(self.tensors)]

    @rule(size=SIZES, needs_grad=st.booleans())
    def make(self, size: int, needs_grad: bool) -> None:
        self.tensors.append(torch.rand(size, requires_grad=needs_grad))

    @rule(size=SIZES, dtype=st.sampled_from([torch.int64, torch.bool, torch.bfloat16]))
    def make_with_dtype(self, size: int, dtype: torch.dtype) -> None:
        self.tensors.append(torch.zeros(size, dtype=dtype))

    @precondition(lambda self: self.tensors)
    @rule(which=WHICH, is_graph=st.booleans())
    def compute(self, which: int, is_graph: bool) -> None:
        x = self.pick(which)
        with torch.set_grad_enabled(is_graph):
            self.tensors.append(x.float().sin() + x)

    @precondition(lambda self: self.tensors)
    @rule(which=WHICH, kind=st.sampled_from(["half", "reshape", "expand", "detach", "alias"]))
    def view(self, which: int, kind: str) -> None:
        x = self.pick(which)
        views = {
            "half": lambda: x[: x.size(0) // 2] if x.dim() else x,
            "reshape": lambda: x.reshape(-1),
            "expand": lambda: x.unsqueeze(0).expand(3, *x.shape),
            "detach": lambda: x.detach(),
            "alias": lambda: x.view_as(x),
        }
        self.tensors.append(views[kind]())

    @precondition(lambda self: self.tensors)
    @rule(which=WHICH)
    def copy(self, which: int) -> None:
        self.tensors.append(self.pick(which).clone())

    @precondition(lambda self: self.tensors)
    @rule(which=WHICH)
    def change_in_place(self, which: int) -> None:
        x = self.pick(which).data  # hides the change from autograd
        if x.stride() == x.contiguous().stride():
            x.zero_()

    @precondition(lambda self: self.tensors)
    @rule(which=WHICH, size=SIZES)
    def resize_tensor(self, which: int, size: int) -> None:
        x = self.pick(which)
        if not x.requires_grad and x._base is None:
            x.resize_(size)

    @precondition(lambda self: self.tensors)
    @rule(which=WHICH, size_bytes=st.sampled_from([512, 4096]))
    def resize_storage(self, which: int, size_bytes: int) -> None:
        """Only grows: other tensors may use the storage."""
        storage = self.pick(which).untyped_storage()
        if storage.nbytes() < size_bytes:
            storage.resize_(size_bytes)

    @precondition(lambda self: self.tensors)
    @rule(which=WHICH)
    def split_and_join(self, which: int) -> None:
        x = self.pick(which)
        if x.dim() == 1 and x.numel() > 1:
            self.tensors += x.chunk(2)
            self.tensors.append(torch.cat([x, x]))

    @precondition(lambda self: self.tensors)
    @rule(which=WHICH)
    def free(self, which: int) -> None:
        del self.tensors[which % len(self.tensors)]

    @rule(how=st.sampled_from(["grad", "no_grad", "inference", "checkpoint"]), rows=SIZES)
    def run_model(self, how: str, rows: int) -> None:
        x = torch.rand(rows, 6)
        if how == "checkpoint":
            y = checkpoint(self.model, x, use_reentrant=False, preserve_rng_state=False)
        elif how == "inference":
            with torch.inference_mode():
                self.model(x)
            return  # the other rules cannot use such tensors
        else:
            with torch.set_grad_enabled(how == "grad"):
                y = self.model(x)
        if how != "checkpoint":
            self.tensors.append(y)
        else:
            y.sum().backward()

    @precondition(lambda self: any(t.grad_fn is not None for t in self.tensors))
    @rule(which=WHICH, keep=st.booleans())
    def backward(self, which: int, keep: bool) -> None:
        graphs = [t for t in self.tensors if t.grad_fn is not None]
        # The graph may be freed, or a step may have changed the weights that it saved.
        with contextlib.suppress(RuntimeError):
            graphs[which % len(graphs)].sum().backward(retain_graph=keep)

    @rule(set_to_none=st.booleans())
    def step(self, set_to_none: bool) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=set_to_none)

    @rule()
    def raise_in_forward(self) -> None:
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            self.model(torch.rand(2, 5))

    @rule()
    def reset(self) -> None:
        self.tracker.reset_mod_stats()

    @rule()
    def leave_and_enter(self) -> None:
        self.tracker.__exit__(None, None, None)
        self.tracker.__enter__()

    @invariant()
    def categories_sum_to_the_total(self) -> None:
        for held in (now(self.tracker), peak(self.tracker)):
            assert sum(held.get(name, 0) for name in CATEGORIES) == held.get("Total", 0)
            assert all(size > 0 for size in held.values())

    @invariant()
    def peak_is_not_below_the_current_total(self) -> None:
        assert peak(self.tracker).get("Total", 0) >= now(self.tracker).get("Total", 0)

    @invariant()
    def total_equals_the_allocator(self) -> None:
        assert now(self.tracker).get("Total", 0) == self.live_bytes() - self.base_bytes

    @invariant()
    def total_equals_the_reachable_storages(self) -> None:
        states = [t for s in self.optimizer.state.values() for t in s.values() if t is not None]
        roots = [*self.tensors, *self.model.parameters(), *states]
        untracked = sum(self.tracker.get_untracked_memory().values())
        held = now(self.tracker).get("Total", 0)
        assert held - untracked == sum(storages_behind(roots).values())

    @invariant()
    def labels_of_the_model_are_right(self) -> None:
        parameters = list(self.model.parameters())
        gradients = [p.grad for p in parameters if p.grad is not None]
        held = now(self.tracker)
        assert held["Parameter"] == sum(p.nbytes for p in parameters)
        assert held.get("Gradient", 0) == sum(g.untyped_storage().nbytes() for g in gradients)

    @invariant()
    def nothing_went_wrong_inside(self) -> None:
        assert self.tracker._native.anomalies() == (0, "")

    def teardown(self) -> None:
        """Frees are also seen after the exit."""
        self.tracker.__exit__(None, None, None)
        self.tensors.clear()
        self.optimizer.zero_grad()
        self.total_equals_the_allocator()
        self.counting.__exit__(None, None, None)
        gc.enable()


def run_programs(
    count: int, lines: int, *, is_long: bool, program: type[Program] = Program
) -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        program,
        settings=settings(
            max_examples=count,
            stateful_step_count=lines,
            deadline=None,
            # No shrinking: it takes minutes, and the first failing program is printed anyway.
            phases=(Phase.explicit, Phase.reuse, Phase.generate),
            print_blob=True,
            derandomize=not is_long,
            suppress_health_check=list(HealthCheck),
        ),
    )
