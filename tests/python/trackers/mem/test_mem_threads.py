# SPDX-License-Identifier: BSD-3-Clause
"""Threads that start while a tracker is entered, threads that attach, and other threads."""

from __future__ import annotations

import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import tidegauge
import torch
from counting import counting
from runs import read_split
from tidegauge import MemTracker
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._mode_utils import no_dispatch
from tracked import now, parameter_bytes, peak, split, track

LOSS = 4


def in_thread(body: Callable[[], object]) -> None:
    thread = threading.Thread(target=body)
    thread.start()
    thread.join()


def test_thread_that_starts_inside_is_tracked() -> None:
    model, x = nn.Linear(32, 32), torch.ones(8, 32)
    tracker = track(model, x)
    with tracker:
        in_thread(lambda: model(x).sum().backward())
        weights = parameter_bytes(model)
        assert now(tracker) == split(Parameter=weights, Gradient=weights, Other=x.nbytes)
        states = tracker.memory_tracking[model].snapshots
        assert {state.value: len(calls) for state, calls in states.items()} == {
            "Peak-Forward": 1,
            "Pre-Forward": 1,
            "Post-Forward": 1,
            "Peak-Backward": 1,
            "Pre-Backward": 1,
            "Post-Backward": 1,
        }


def test_existing_thread_is_tracked_once_it_attaches() -> None:
    kept = []
    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        with MemTracker() as tracker:
            kept.append(pool.submit(torch.ones, 8).result())
            assert now(tracker) == {}
            pool.submit(tidegauge.attach_thread).result()
            kept.append(pool.submit(torch.ones, 8).result())
            assert now(tracker) == split(Activation=32)
        with MemTracker() as later:  # attached for all trackers
            kept.append(pool.submit(torch.ones, 8).result())
            assert now(later) == split(Activation=32)
            pool.submit(tidegauge.detach_thread).result()
            kept.append(pool.submit(torch.ones, 8).result())
            assert now(later) == split(Activation=32)
    assert len(kept) == 4


def test_detaching_a_thread_that_is_not_attached_is_an_error() -> None:
    with pytest.raises(ValueError, match="is not attached; call attach_thread"):
        tidegauge.detach_thread()


def test_backward_is_tracked_if_its_thread_is() -> None:
    """It does not matter which thread made the graph."""
    model, x = nn.Linear(32, 32), torch.ones(8, 32)
    tracker = track(model, x)
    with tracker:
        losses: list[torch.Tensor] = []
        in_thread(lambda: losses.append(model(x).sum()))
        losses[0].backward()
        weights = parameter_bytes(model)
        assert now(tracker) == split(
            Parameter=weights, Gradient=weights, Activation=LOSS, Other=x.nbytes
        )


THREADS, STEPS = 4, 20


def test_concurrent_threads_give_exact_figures() -> None:
    models = [
        nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32)) for _ in range(THREADS)
    ]
    inputs = [torch.ones(8, 32) for _ in range(THREADS)]
    barrier = threading.Barrier(THREADS)

    def train(index: int, steps: int) -> None:
        optimizer = torch.optim.SGD(models[index].parameters(), lr=0.1)
        for _ in range(steps):
            barrier.wait()
            optimizer.zero_grad()
            models[index](inputs[index]).sum().backward()
            optimizer.step()

    def run(steps: int) -> None:
        threads = [threading.Thread(target=train, args=(index, steps)) for index in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    tracker = track(*models, *inputs)
    with counting() as allocator, tracker:
        base = allocator.read().storage_bytes - now(tracker)["Total"]
        run(STEPS)
        weights = sum(map(parameter_bytes, models))
        inputs_bytes = sum(x.nbytes for x in inputs)
        assert now(tracker) == split(Parameter=weights, Gradient=weights, Other=inputs_bytes)
        assert now(tracker)["Total"] == allocator.read().storage_bytes - base
        assert tracker._native.anomalies() == (0, "")
        tracker.reset_mod_stats()  # a second call of any root would restart them
        run(1)
        for module in (module for model in models for module in model.modules()):
            states = tracker.memory_tracking[module].snapshots
            assert [len(calls) for calls in states.values()] == [1] * 6


def test_storages_of_concurrent_threads_belong_to_their_own_modules(
    tmp_path: Path,
) -> None:
    """Each thread uses its own sizes, which identify its storages in the trace."""
    widths = [8 * (index + 1) for index in range(THREADS)]
    models = [nn.Sequential(nn.Linear(w, w), nn.Tanh(), nn.Linear(w, w)) for w in widths]
    inputs = [torch.ones(w + 1, w) for w in widths]
    barrier = threading.Barrier(THREADS)

    def train(index: int) -> None:
        for _ in range(STEPS):
            barrier.wait(60)
            y = models[index](inputs[index])
            barrier.wait(60)
            y.sum().backward()
            barrier.wait(60)
            models[index].zero_grad()

    tracker = MemTracker(record=tmp_path / "run.tide", stacks="module")
    tracker.track_external(*models, *inputs)
    with tracker:
        threads = [threading.Thread(target=train, args=(index,)) for index in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        names = [tracker.memory_tracking[model].mod_fqn for model in models]
    assert tracker._native.anomalies() == (0, "")
    with closing(sqlite3.connect(tmp_path / "run.tide")) as trace:
        rows = trace.execute(
            "SELECT module, shape, parameter, count(*) FROM allocations WHERE op != ''"
            " GROUP BY 1, 2, 3"
        ).fetchall()
    made = {(module, shape): count for module, shape, _, count in rows if module}
    # By hand: the tensors that each Linear makes in forward, and in backward for weight, bias and
    # input. The first has no gradient for its input; Tanh has one.
    by_hand = {}
    for name, width in zip(names, widths, strict=True):
        batch, weight, bias = f"[{width + 1}, {width}]", f"[{width}, {width}]", f"[1, {width}]"
        by_hand |= {
            (f"{name}.0", batch): STEPS,
            (f"{name}.1", batch): 2 * STEPS,
            (f"{name}.2", batch): 2 * STEPS,
            (f"{name}.0", weight): STEPS,
            (f"{name}.2", weight): STEPS,
            (f"{name}.0", bias): STEPS,
            (f"{name}.2", bias): STEPS,
        }
    assert made == by_hand


class Descend(torch.autograd.Function):
    """Its backward runs a nested backward through `model`, `depth` levels deep."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, model: nn.Module, depth: int, seen: Any) -> torch.Tensor:
        ctx.args = model, depth, seen
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        model, depth, seen = ctx.args
        (x,) = ctx.saved_tensors
        seen(depth)
        if depth > 0:
            with torch.enable_grad():
                y = Descend.apply(model(x.detach().requires_grad_()), model, depth - 1, seen)
                y.sum().backward()
        return grad * 2, None, None, None


def test_deep_reentrant_backward_in_threads_of_the_engine_is_exact() -> None:
    """Beyond a depth of 60, autograd continues in a pool of threads that are not attached."""
    depth, width = 130, 16
    model, x = nn.Linear(width, width), torch.ones(8, width, requires_grad=True)
    threads: set[int] = set()
    tracker = track(model, x)

    with counting() as allocator, tracker:
        base = allocator.read().storage_bytes - now(tracker)["Total"]

        def seen(level: int) -> None:
            threads.add(threading.get_ident())
            assert now(tracker)["Total"] == allocator.read().storage_bytes - base

        allocator.restart()
        loss = Descend.apply(x, model, depth, seen).sum()
        loss.backward()
        weights = parameter_bytes(model)
        assert now(tracker) == split(
            Parameter=weights, Gradient=weights, Temp=x.nbytes, Activation=LOSS, Other=x.nbytes
        )
        assert now(tracker)["Total"] == allocator.read().storage_bytes - base
        assert peak(tracker)["Total"] == allocator.read().storage_peak_bytes - base
        assert tracker._native.anomalies() == (0, "")
    assert len(threads) > 1
    states = tracker.memory_tracking[model].snapshots
    assert {state.value: len(calls) for state, calls in states.items()} == {
        "Pre-Forward-AC": depth,
        "Post-Forward-AC": depth,
        "Pre-Backward": depth,
        "Peak-Backward": depth,
        "Post-Backward": depth,
    }


def test_tensor_from_another_thread_counts_until_it_is_dropped() -> None:
    batches: queue.Queue[torch.Tensor] = queue.Queue()
    with MemTracker() as tracker:
        in_thread(lambda: [batches.put(torch.ones(256)) for _ in range(3)])
        assert now(tracker) == split(Activation=3 * 1024)
        batches.get()
        assert now(tracker) == split(Activation=2 * 1024)
        while not batches.empty():
            batches.get()
        assert now(tracker) == {}


def test_exception_in_a_thread_does_not_affect_the_others() -> None:
    def fail() -> None:
        torch.ones(256) @ torch.ones(3)

    caught: list[Any] = []
    previous, threading.excepthook = threading.excepthook, caught.append
    try:
        with MemTracker() as tracker:
            in_thread(fail)
            del caught[:]
            x = torch.ones(8)
            assert now(tracker) == split(Activation=x.nbytes)
    finally:
        threading.excepthook = previous


def test_thread_may_outlive_the_tracker() -> None:
    go_on = threading.Event()
    started = threading.Event()
    sums: list[float] = []

    def work() -> None:
        x = torch.ones(8)
        started.set()
        go_on.wait(60)
        sums.append((x + 1).sum().item())

    with MemTracker() as tracker:
        thread = threading.Thread(target=work)
        thread.start()
        started.wait(60)
    before = now(tracker)
    go_on.set()
    thread.join()
    assert (before, sums) == (split(Activation=32), [16.0])
    assert now(tracker) == {}


def is_switched_on() -> bool:
    return "Fake" in str(torch._C._dispatch_tls_local_include_set())


@pytest.fixture
def entry() -> Iterator[ExitStack]:
    """For entering trackers within a scope that ends before they do."""
    with ExitStack() as stack:
        yield stack
    assert not is_switched_on()


def test_tracker_entered_within_inference_mode_continues_after_it(entry: ExitStack) -> None:
    """The mode restores the earlier dispatch keys of the thread, without ours."""
    with torch.inference_mode():
        tracker = entry.enter_context(MemTracker())
        first = torch.ones(8)
    second = torch.ones(16)
    third = second + 1  # the only calls into tidegauge so far were ops
    del third
    assert peak(tracker) == split(Activation=first.nbytes + 2 * second.nbytes)
    assert now(tracker) == split(Activation=first.nbytes + second.nbytes)


@torch.inference_mode()
def enter_within(entry: ExitStack) -> MemTracker:
    with torch.inference_mode(mode=False), torch.inference_mode():
        return entry.enter_context(MemTracker())


def test_every_kind_of_inference_mode_may_be_around_the_entry(entry: ExitStack) -> None:
    tracker = enter_within(entry)
    kept = torch.ones(8)
    assert now(tracker) == split(Activation=kept.nbytes)
    entry.close()
    within = torch.autograd.grad_mode._enter_inference_mode(True)
    tracker = entry.enter_context(MemTracker())
    torch.autograd.grad_mode._exit_inference_mode(within)
    kept = torch.ones(8)
    assert now(tracker) == split(Activation=kept.nbytes)


def test_tracking_continues_after_inference_mode_ends_by_an_exception(entry: ExitStack) -> None:
    @torch.inference_mode()
    def fail() -> None:
        entry.enter_context(tracker)
        raise ZeroDivisionError

    tracker = MemTracker()
    with pytest.raises(ZeroDivisionError):
        fail()
    kept = torch.ones(8)
    assert now(tracker) == split(Activation=kept.nbytes)


def attach_within_inference_mode() -> None:
    with torch.inference_mode():
        tidegauge.attach_thread()


@pytest.mark.parametrize("is_entered_first", [True, False])
def test_thread_attached_within_inference_mode_is_tracked_after_it(
    is_entered_first: bool,
) -> None:
    kept = []
    with ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        tracker = MemTracker()
        if not is_entered_first:
            pool.submit(attach_within_inference_mode).result()
        with tracker:
            if is_entered_first:
                pool.submit(attach_within_inference_mode).result()
            kept.append(pool.submit(torch.ones, 8).result())
            assert now(tracker) == split(Activation=32)
        pool.submit(tidegauge.detach_thread).result()
        assert not pool.submit(is_switched_on).result()


def test_torch_is_restored_after_an_attached_thread_ends() -> None:
    original = torch._C._InferenceMode.__dict__["__exit__"]
    with ThreadPoolExecutor(1, initializer=tidegauge.attach_thread) as pool:
        pool.submit(int).result()
        assert torch._C._InferenceMode.__dict__["__exit__"] is not original
    assert torch._C._InferenceMode.__dict__["__exit__"] is original
    in_thread(tidegauge.attach_thread)
    tidegauge.attach_thread()
    tidegauge.detach_thread()
    assert torch._C._InferenceMode.__dict__["__exit__"] is original


@pytest.mark.parametrize("repair", ["backward", "step", "module", "entry", "attach", "peak"])
def test_tracking_resumes_with_our_next_call_after_an_unnoticed_guard(
    entry: ExitStack, repair: str
) -> None:
    """A guard made before the entry: we cannot notice when it ends."""
    model, x = nn.Linear(8, 8), torch.ones(8)
    loss = (x * model.weight).sum()
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))])
    with torch._C._PreserveDispatchKeyGuard():
        tracker = entry.enter_context(MemTracker())
    unseen = torch.ones(8)
    assert not is_switched_on()
    if repair == "backward":
        loss.backward()
    elif repair == "step":
        optimizer.step()
    elif repair == "module":
        nn.Identity()(x)
    elif repair == "entry":
        with MemTracker():
            pass
    elif repair == "attach":
        tidegauge.attach_thread()
        tidegauge.detach_thread()
    else:
        peak(tracker)
    seen = torch.ones(8)
    gradients = model.weight.nbytes if repair == "backward" else 0
    assert now(tracker)["Activation"] == seen.nbytes
    assert now(tracker).get("Gradient", 0) == gradients
    view = unseen.view(2, 4)  # observed here: this op did not make it
    assert now(tracker)["Activation"] == seen.nbytes
    del view


def test_tracker_left_within_inference_mode_stays_left() -> None:
    tracker = MemTracker()
    tracker.__enter__()
    with torch.inference_mode():
        tracker.__exit__(None, None, None)
    kept = torch.ones(8)
    assert now(tracker) == {}
    assert not is_switched_on()
    del kept


def test_tracker_left_within_inference_mode_stays_left_while_another_thread_is_tracked() -> None:
    is_entered, may_leave = threading.Event(), threading.Event()
    others: list[MemTracker] = []

    def track() -> None:
        with MemTracker() as other:
            others.append(other)
            is_entered.set()
            may_leave.wait()

    thread = threading.Thread(target=track)
    tracker = MemTracker()
    tracker.__enter__()
    thread.start()
    is_entered.wait()
    with torch.inference_mode():
        tracker.__exit__(None, None, None)
    kept = [torch.ones(8)]
    assert not is_switched_on()
    kept.append(torch.ones(8))
    assert now(others[0]) == {}
    with MemTracker() as again:
        kept.append(torch.ones(8))
        assert now(again) == split(Activation=32)
    may_leave.set()
    thread.join()


def test_ops_within_scopes_that_change_dispatch_keys_are_tracked() -> None:
    with MemTracker() as tracker:
        kept = []
        for scope in (torch.inference_mode, no_dispatch, torch.no_grad):
            with scope():
                kept.append(torch.ones(8))
        kept.append(torch.ones(8))
        assert now(tracker) == split(Activation=4 * 32)


def test_tracker_may_be_left_by_another_thread() -> None:
    tracker = MemTracker()
    tracker.__enter__()
    kept = [torch.ones(8)]
    in_thread(lambda: tracker.__exit__(None, None, None))
    kept.append(torch.ones(8))
    assert now(tracker) == split(Activation=32)
    assert not is_switched_on()
    with MemTracker() as next_one:
        kept.append(torch.ones(8))
        assert now(next_one) == split(Activation=32)


def test_fake_mode_of_the_entry_also_counts_in_other_threads() -> None:
    mode = FakeTensorMode()
    kept: list[torch.Tensor] = []

    def make(mode: FakeTensorMode) -> None:
        with mode:
            kept.append(torch.ones(1000))

    with mode, MemTracker() as tracker:
        in_thread(lambda: make(mode))
        assert now(tracker) == split(Activation=4000)
        in_thread(lambda: make(FakeTensorMode()))
        assert now(tracker) == split(Activation=4000)


def test_thread_start_is_restored_after_the_last_exit() -> None:
    original = threading.Thread.__dict__["_bootstrap_inner"]
    with MemTracker():
        assert threading.Thread.__dict__["_bootstrap_inner"] is not original
    assert threading.Thread.__dict__["_bootstrap_inner"] is original
    with MemTracker() as tracker:
        pass
    in_thread(lambda: torch.ones(8))
    assert read_split(tracker.get_tracker_snapshot()) == {}
