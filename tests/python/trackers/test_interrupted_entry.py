# SPDX-License-Identifier: BSD-3-Clause
"""Ctrl-C at any bytecode while a context is entered or exited leaves torch as it was."""

from __future__ import annotations

import functools
import gc
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
import sharded
import torch
from tidegauge import _C, FSDPMemTracker, MemTracker, ModTracker, simulate, track
from tidegauge._torch import (
    dtensor_patches,
    fsdp_patches,
    memory_patches,
    pipeline_patches,
    simulation_patches,
)
from tidegauge._torch.module_patches import FOR_MODULES
from tidegauge._torch.op_patches import FOR_OPS, FOR_THREADS
from tidegauge._torch.optimizer_patches import FOR_OPTIMIZERS, FOR_STEPS
from tidegauge._torch.patching import Installation
from tidegauge.callbacks import LoopLogger
from tidegauge.memory_tracker import MemoryTracker
from tidegauge.runtime_estimator import RuntimeEstimator
from tidegauge.sac_estimator import SACEstimator
from tidegauge.trackers.script_tracker import ScriptTracker
from torch import nn
from torch.nn.modules import module as nn_module
from torch.optim import optimizer as optim_module


class SteppedTracker(ModTracker):
    """Gets global forward hooks."""

    def _fw_pre_hook(self, mod: nn.Module, input: Any) -> None:
        super()._fw_pre_hook(mod, input)


class ModeTracker(MemTracker):  # type: ignore[no-untyped-call]
    """Is pushed as a mode."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return super().__torch_dispatch__(func, types, args, kwargs)


class Monitored:
    """A MemoryTracker as a context. If an interrupt comes when `start_monitor` or `stop` has nearly
    returned, the program finds it monitoring and calls `stop`."""

    def __init__(self) -> None:
        self.tracker = MemoryTracker()
        self.model = nn.Linear(2, 2)

    def __enter__(self) -> None:
        try:
            self.tracker.start_monitor(self.model)
        except KeyboardInterrupt:
            if self.tracker._is_monitoring():
                self.tracker.stop()
            raise

    def __exit__(self, *args: object) -> None:
        try:
            self.tracker.stop()
        except KeyboardInterrupt:
            if self.tracker._is_monitoring():
                self.tracker.stop()
            raise


@functools.cache
def sharded_model() -> nn.Module:
    with sharded.world(4):
        return sharded.shard_all(sharded.Net())


CONTEXTS: dict[str, Callable[[], Any]] = {
    "ModTracker": ModTracker,
    "ModTracker with own hooks": SteppedTracker,
    "MemTracker": MemTracker,
    "MemTracker as a mode": ModeTracker,
    "ScriptTracker": ScriptTracker,
    "FSDPMemTracker": lambda: FSDPMemTracker(sharded_model()),
    "MemoryTracker": Monitored,
    "RuntimeEstimator": RuntimeEstimator,
    "SACEstimator": SACEstimator,
    "track": track,
    "LoopLogger": lambda: LoopLogger(print),
    "simulate": simulate,
    "simulate with a process group": lambda: simulate(world_size=2),
}


def installations() -> list[Installation]:
    return [
        FOR_MODULES,
        FOR_OPS,
        FOR_THREADS,
        FOR_OPTIMIZERS,
        FOR_STEPS,
        memory_patches.FOR_MEMORY,
        fsdp_patches._FOR_FSDP,
        dtensor_patches._FOR_SHARDINGS,
        simulation_patches.installation(),
        pipeline_patches.installation(),
    ]


def state() -> list[Any]:
    """All that entering a context changes in torch."""
    patched = {
        f"{patch._owner.__name__}.{patch._name}": patch._owner.__dict__.get(patch._name)
        for each in installations()
        for patch in each._patches.values()
    }
    hooks = {
        name: list(value)
        for place in (nn_module, optim_module)
        for name, value in vars(place).items()
        if name.startswith("_global_") and hasattr(value, "items")
    }
    return [
        patched,
        hooks,
        list(sys.meta_path),
        torch._C._len_torch_dispatch_stack(),
        torch._C._autograd._top_saved_tensors_default_hooks(True),
        torch.distributed.is_initialized(),
        _C.simulation_is_on(),
        str(torch._C._dispatch_tls_local_include_set()),
    ]


class Interrupter:
    """Raises KeyboardInterrupt at the n-th bytecode that runs within `with`, in any function."""

    def __init__(self, at: int) -> None:
        self.left = at
        self.has_raised = False

    def __enter__(self) -> Interrupter:
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, arg: Any) -> Any:
        if frame.f_code.co_filename == __file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            self.left -= 1
            if self.left == 0:
                self.has_raised = True
                raise KeyboardInterrupt
        return self._trace


def count_bytecodes(action: Callable[[], None]) -> int:
    counter = Interrupter(1 << 60)
    with counter:
        action()
    return (1 << 60) - counter.left


def enter_and_exit(context: Any) -> None:
    context.__enter__()
    context.__exit__(None, None, None)


def points(total: int) -> Iterator[int]:
    """About 250 bytecodes, and all of the first and last 40."""
    yield from range(1, min(41, total + 1))
    yield from range(41, total - 40, max(1, total // 170))
    yield from range(max(41, total - 40), total + 1)


@pytest.mark.parametrize("name", CONTEXTS)
def test_interrupt_at_any_bytecode_leaves_torch_as_it_was(name: str) -> None:
    make = CONTEXTS[name]
    enter_and_exit(make())  # imports everything
    before = state()
    counted = make()
    total = count_bytecodes(lambda: enter_and_exit(counted))
    raised = 0
    for point in points(total):
        context = make()
        interrupter = Interrupter(point)
        try:
            with interrupter:
                context.__enter__()
        except KeyboardInterrupt:
            assert state() == before, f"interrupted at bytecode {point} while entered"
            continue
        try:
            with interrupter:
                context.__exit__(None, None, None)
        except KeyboardInterrupt:
            pass
        raised += interrupter.has_raised
        assert state() == before, f"interrupted at bytecode {point} while exited"
    assert raised > 20
    enter_and_exit(make())
    assert state() == before


def test_forgotten_tracker_is_undone_by_the_next_use() -> None:
    before = state()
    tracker = MemTracker()
    tracker.__enter__()
    assert state() != before
    del tracker  # an interrupt came before the program could exit it
    gc.collect()
    with MemTracker():
        pass
    assert state()[0] == before[0]


def test_interrupt_while_another_tracker_is_entered_keeps_that_one() -> None:
    with MemTracker() as other:
        entered = state()
        for point in range(1, 400, 13):
            try:
                with Interrupter(point):
                    enter_and_exit(MemTracker())
            except KeyboardInterrupt:
                pass
            assert state() == entered
        kept = torch.ones(1000)
        assert other.get_tracker_snapshot()[torch.device("cpu")]["Total"] == 4000
    del kept


def test_trackers_enter_and_exit_in_many_threads() -> None:
    before = state()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            for _ in range(50):
                with MemTracker():
                    torch.ones(3)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert state() == before


def test_interrupts_by_real_signals_leave_torch_as_it_was() -> None:
    before = state()
    count = 0
    for delay in range(1, 60):
        tracker = MemTracker()
        previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
        try:
            signal.setitimer(signal.ITIMER_REAL, delay * 2e-5)
            tracker.__enter__()
            tracker.__exit__(None, None, None)
            while True:  # until the signal comes
                pass
        except KeyboardInterrupt:
            count += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, previous)
        if tracker._depth:  # it came after the entry
            tracker.__exit__(None, None, None)
        assert state() == before
    assert count == 59
