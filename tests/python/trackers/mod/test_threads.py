# SPDX-License-Identifier: BSD-3-Clause
"""Several threads in one tracker: each sees its own modules, in forward and in backward."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import tidegauge
import torch
from models import Calls, Checkpointed, Net, inputs, train
from observe import Tracker, UpstreamModTracker, names
from torch import nn

THREADS = 4


class Meet(torch.autograd.Function):
    """Waits in forward and in backward for all threads, then reads the active modules."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, look: Callable[[str], None]) -> torch.Tensor:
        ctx.look = look
        look("forward")
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        ctx.look("backward")
        return grad.clone(), None


def look_in_all_threads(tracker: Tracker) -> dict[str, list[str]]:
    """The modules that each of four threads sees while all are inside their own module."""
    barrier = threading.Barrier(THREADS, timeout=60)
    seen: dict[str, list[str]] = {"forward": [""] * THREADS, "backward": [""] * THREADS}

    def make_model(index: int) -> nn.Module:
        def look(moment: str) -> None:
            barrier.wait()
            seen[moment][index] = names(tracker.parents)
            barrier.wait()

        kind = type(f"Net{index}", (Calls,), {})
        return kind(lambda self, x: self.fc(Meet.apply(x, look)))

    with tracker, ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(train, [make_model(index) for index in range(THREADS)]))
    return seen


def test_threads_see_only_their_own_modules() -> None:
    own = [f"Net{index}" for index in range(THREADS)]
    everybody = " ".join(own)
    theirs = look_in_all_threads(UpstreamModTracker())
    assert theirs["forward"] == [everybody] * THREADS
    assert theirs["backward"] != own
    mine = look_in_all_threads(tidegauge.ModTracker())
    assert mine == {"forward": own, "backward": own}


def test_user_hooks_of_concurrent_steps_are_kept_apart() -> None:
    tracker = tidegauge.ModTracker()
    calls: dict[int, list[str]] = {}

    def note(kind: str) -> Callable[..., None]:
        def hook(mod: nn.Module, *args: Any) -> None:
            line = f"{kind} {type(mod).__name__}: {names(tracker.parents)}"
            calls.setdefault(threading.get_ident(), []).append(line)

        return hook

    tracker.register_user_hooks(note("pre_fw"), note("post_fw"), note("pre_bw"), note("post_bw"))
    start = threading.Barrier(THREADS, timeout=60)

    def steps(kind: type[nn.Module]) -> tuple[str, list[str]]:
        start.wait()
        model = kind()
        for _ in range(20):
            train(model)
        return kind.__name__, calls[threading.get_ident()]

    kinds = [type(f"Net{index}", (Net,), {}) for index in range(THREADS)]
    with tracker, ThreadPoolExecutor(THREADS) as pool:
        for name, lines in pool.map(steps, kinds):
            assert len(lines) == 20 * 4 * 4  # steps, modules, hooks
            assert lines[0] == f"pre_fw {name}: {name}"
            assert all(line.split(": ")[1].split()[0] == name for line in lines)


def test_backward_in_another_thread_knows_the_modules_of_the_forward() -> None:
    tracker = tidegauge.ModTracker()
    seen: list[str] = []
    hooks: list[str] = []
    tracker.register_user_hooks(
        pre_bw_hook=lambda mod, grads: hooks.append(f"pre {names(tracker.parents)}"),
        post_bw_hook=lambda mod, grads: hooks.append(f"post {names(tracker.parents)}"),
    )
    model = Calls(lambda self, x: self.fc(x).cos())
    model.fc.weight.register_post_accumulate_grad_hook(
        lambda _: seen.append(names(tracker.parents))
    )
    with tracker:
        output = model(inputs())
        output.register_hook(lambda grad: seen.append(names(tracker.parents)))
        worker = threading.Thread(target=output.sum().backward)
        worker.start()
        worker.join()
    assert seen == ["Calls", "Calls Calls.fc"]
    assert hooks == ["pre Calls", "pre Calls Calls.fc", "post Calls", "post Calls Calls.fc"]


def test_kept_gradient_accumulator_of_another_thread_belongs_to_its_owner() -> None:
    """Data-parallel wrappers keep the accumulators that they make at construction."""
    tracker = tidegauge.ModTracker()
    seen: list[str] = []
    model = Net()
    kept = [p.expand_as(p).grad_fn.next_functions[0][0] for p in model.parameters()]
    for parameter in model.fc2.parameters():
        parameter.register_post_accumulate_grad_hook(lambda _: seen.append(names(tracker.parents)))
    with tracker:
        worker = threading.Thread(target=train, args=(model,))
        worker.start()
        worker.join()
    assert len(kept) == 4
    assert seen == ["Net Net.fc2"] * 2


def test_graph_of_a_thread_that_has_ended_knows_its_modules() -> None:
    tracker = tidegauge.ModTracker()
    seen: list[str] = []
    outputs: list[torch.Tensor] = []
    model = Calls(lambda self, x: self.fc(x).cos())

    def forward() -> None:
        outputs.append(model(inputs()))

    with tracker:
        worker = threading.Thread(target=forward)
        worker.start()
        worker.join()
        outputs[0].register_hook(lambda grad: seen.append(names(tracker.parents)))
        outputs.pop().sum().backward()
    assert seen == ["Calls"]


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoints_in_several_threads_are_kept_apart(use_reentrant: bool) -> None:
    tracker = tidegauge.ModTracker()
    barrier = threading.Barrier(THREADS, timeout=60)

    def steps(index: int) -> set[str]:
        seen: set[str] = set()

        def body(self: Any, x: torch.Tensor) -> torch.Tensor:
            barrier.wait()
            seen.add(f"{names(tracker.parents)} {tracker.is_bw}")
            return x.sin()

        model = type(f"Net{index}", (Checkpointed,), {})(use_reentrant, Calls(body))
        for _ in range(5):
            train(model)
        return seen

    with tracker, ThreadPoolExecutor(THREADS) as pool:
        for index, seen in enumerate(pool.map(steps, range(THREADS))):
            own = f"Net{index} Net{index}.body"
            assert seen == {f"{own} False", f"{own} True"}


def test_one_model_in_several_threads() -> None:
    tracker = tidegauge.ModTracker()
    model = Net()
    barrier = threading.Barrier(THREADS, timeout=60)
    seen: list[str] = []

    def look(*args: Any) -> None:
        barrier.wait()
        seen.append(names(tracker.parents))
        barrier.wait()

    model.act.register_forward_hook(look)
    with tracker, ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda _: train(model), range(THREADS)))
        assert names(tracker.parents) == "-"
    assert seen == ["Net Net.act"] * THREADS


def test_thread_that_fails_does_not_disturb_the_others() -> None:
    tracker = tidegauge.ModTracker()
    inside, failed = threading.Event(), threading.Event()
    seen: list[str] = []

    def waiting(self: Any, x: torch.Tensor) -> torch.Tensor:
        inside.set()
        assert failed.wait(60)
        seen.append(names(tracker.parents))
        return x.sin()

    def failing(self: Any, x: torch.Tensor) -> torch.Tensor:
        assert inside.wait(60)
        raise RuntimeError("boom")

    def fail() -> None:
        try:
            with pytest.raises(RuntimeError, match="boom"):
                train(nn.Sequential(Calls(failing)))
        finally:
            failed.set()

    with tracker, ThreadPoolExecutor(2) as pool:
        for job in [pool.submit(train, Calls(waiting)), pool.submit(fail)]:
            job.result()
    assert seen == ["Calls"]


def test_tracker_left_while_a_thread_is_inside_a_module() -> None:
    tracker = tidegauge.ModTracker()
    inside, left = threading.Event(), threading.Event()
    seen: list[str] = []

    def waiting(self: Any, x: torch.Tensor) -> torch.Tensor:
        inside.set()
        assert left.wait(60)
        seen.append(names(tracker.parents))
        return self.fc(x)

    with ThreadPoolExecutor(1) as pool:
        with tracker:
            job = pool.submit(train, Calls(waiting))
            assert inside.wait(60)
        left.set()
        job.result()
    assert seen == ["-"]


def test_many_short_threads_leave_no_state() -> None:
    tracker = tidegauge.ModTracker()
    model = Net()
    with tracker:
        for _ in range(200):
            worker = threading.Thread(target=train, args=(model,))
            worker.start()
            worker.join()
        assert names(tracker.parents) == "-"
        assert tracker.get_known_fqn(model.act) == "Net.act"


def test_entering_and_leaving_while_others_run() -> None:
    """A lock protects the count of entries: no crash, no wrong name, and torch is restored."""
    original = nn.Module.__call__
    everybody_runs, stop = threading.Barrier(THREADS + 1, timeout=60), threading.Event()

    def work(_: int) -> None:
        model = train(Net())
        everybody_runs.wait()
        while not stop.is_set():
            train(model)

    with ThreadPoolExecutor(THREADS) as pool:
        jobs = [pool.submit(work, index) for index in range(THREADS)]
        everybody_runs.wait()
        for _ in range(100):
            tracker = tidegauge.ModTracker()
            tracker.register_user_hooks(*[lambda *_: None] * 4)
            with tracker:
                train(Net())
        stop.set()
        for job in jobs:
            job.result()
    assert nn.Module.__call__ is original
