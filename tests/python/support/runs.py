# SPDX-License-Identifier: BSD-3-Clause
"""Runs one scenario under our tracker, under upstream's and under none, on a counting allocator.
"observed" has no tracker either, but module hooks that read the allocator. "channel" is ours with
the allocator channel; its total is read at every event of the allocator.

A scenario builds its model, inputs and optimizer, passes them to `run.tracking(...)` and calls
`run.mark(...)` at relevant moments. It returns objects that must live until statistics are read.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from counting import CountingAllocator, Counts, Probed, counting
from observer import ModuleObserver
from torch.distributed._tools import mem_tracker as upstream

Kind = Literal["ours", "channel", "upstream", "untracked", "observed"]
Split = dict[str, int]
"""category -> bytes"""
States = dict[str, list[int]]
"""state of a module -> totals, one per call"""
CPU = torch.device("cpu")
CATEGORIES = ("Parameter", "Buffer", "Gradient", "Activation", "Temp", "Optstate", "Other")
SIZES = ("parameter_mem", "buffer_mem", "input_mem", "output_mem")


def make_tracker(kind: Kind) -> Any:
    """Imports ours late, so that the scenarios can run with upstream alone."""
    if kind == "upstream":
        return upstream.MemTracker()
    if kind in ("ours", "channel"):
        from tidegauge import MemTracker

        return MemTracker(allocator=kind == "channel")
    return None


def read_split(snapshot: dict[Any, dict[Any, int]], device: torch.device = CPU) -> Split:
    """{"Parameter": 16, ..., "Total": 20} without empty categories; {} if there are no bytes."""
    held = snapshot.get(device, {})
    return {str(getattr(key, "value", key)): size for key, size in held.items() if size}


@dataclass
class Record:
    """The figures of one run; the allocator's bytes do not include earlier blocks."""

    marks: dict[str, Split] = field(default_factory=dict)
    peak: Split = field(default_factory=dict)
    states: dict[str, States] = field(default_factory=dict)
    """by module, in the order of their first calls"""
    sizes: dict[str, dict[str, int]] = field(default_factory=dict)
    allocated: dict[str, int] = field(default_factory=dict)
    """mark -> live bytes of the allocator, without blocks declared as untracked"""
    live: dict[str, int] = field(default_factory=dict)
    """mark -> the same with all blocks, also those of Python numbers"""
    probed: Probed | None = None
    observed: list[States] = field(default_factory=list)
    """module states from the allocator, in the order of first calls"""
    allocator: Counts | None = None
    anomalies: tuple[int, str] = (0, "")
    error: BaseException | None = None
    warnings: list[str] = field(default_factory=list)

    def flat(self) -> dict[str, Any]:
        """All figures in one flat dictionary, for comparison."""
        lines: dict[str, Any] = {}
        for name, split in (*self.marks.items(), ("peak", self.peak)):
            lines |= {f"{name}: {key}": split.get(key, 0) for key in (*CATEGORIES, "Total")}
        for name, states in self.states.items():
            lines |= {f"{name}: {state}": totals for state, totals in states.items()}
        for name, sizes in self.sizes.items():
            lines |= {f"{name}: {key}": size for key, size in sizes.items()}
        return lines


class Run:
    """The argument of a scenario."""

    def __init__(self, kind: Kind, allocator: CountingAllocator) -> None:
        self.kind = kind
        self.tracker = make_tracker(kind)
        self.record = Record()
        self._allocator = allocator
        self._base_bytes = allocator.read().storage_bytes
        self._base_live_bytes = allocator.read().live_bytes
        self._observer = ModuleObserver(self) if kind == "observed" else None

    def storages(self) -> tuple[int, int]:
        """(current bytes, peak since the last restart) of the allocator."""
        counts = self._allocator.read()
        return counts.storage_bytes - self._base_bytes, counts.storage_peak_bytes - self._base_bytes

    def restart_peak(self) -> None:
        self._allocator.restart()

    def leave_out(self, size_bytes: int) -> None:
        """Declares `size_bytes` of the allocator that no tracker observes. Negative: a tracker
        observes memory that the allocator did not allocate."""
        self._base_bytes += size_bytes
        self._base_live_bytes += size_bytes

    def _believed_bytes(self) -> int:
        held = self.tracker._native.splits(at_peak=False).get(CPU, {})
        return self._base_live_bytes + sum(held.values())

    @contextmanager
    def tracking(self, *external: Any) -> Iterator[None]:
        """Passes `external` to `track_external`, then enters the tracker."""
        if self.tracker is not None:
            self.tracker.track_external(*external)
        self._allocator.restart()
        with ExitStack() as stack:
            stack.enter_context(self._observer or self.tracker or nullcontext())
            if self.kind == "channel":
                stack.enter_context(self._allocator.probing(self._believed_bytes))
            yield
        self.read_peak()

    def read_peak(self) -> None:
        counts = self._allocator.read()
        self.record.allocator = Counts(
            live_bytes=counts.live_bytes - self._base_live_bytes,
            storage_bytes=counts.storage_bytes - self._base_bytes,
            peak_bytes=counts.peak_bytes - self._base_live_bytes,
            storage_peak_bytes=counts.storage_peak_bytes - self._base_bytes,
            allocations=counts.allocations,
            log_lines=counts.log_lines,
        )
        self.record.probed = self._allocator.probed()
        if self.tracker is not None:
            self.record.peak = read_split(self.tracker.get_tracker_snapshot("peak"))

    def reset(self) -> None:
        if self.tracker is not None:
            self.tracker.reset_mod_stats()
        if self._observer is not None:
            self._observer.calls.clear()

    def mark(self, name: str) -> None:
        taken = sum(mark.split(" #")[0] == name for mark in self.record.allocated)
        name = f"{name} #{taken + 1}" if taken else name
        self.record.allocated[name] = self.storages()[0]
        self.record.live[name] = self._allocator.read().live_bytes - self._base_live_bytes
        if self.tracker is not None:
            self.record.marks[name] = read_split(self.tracker.get_tracker_snapshot())

    def step(
        self,
        model: Callable[..., Any],
        *args: Any,
        optimizer: torch.optim.Optimizer | None = None,
        set_to_none: bool = True,
        **kwargs: Any,
    ) -> None:
        """One training step with marks; the loss lives as long as in most training loops."""
        self.mark("before forward")
        loss = total(model(*args, **kwargs))
        self.mark("after forward")
        loss.backward()
        self.mark("after backward")
        if optimizer is not None:
            optimizer.step()
            self.mark("after step")
            optimizer.zero_grad(set_to_none=set_to_none)
            self.mark("after zero_grad")

    def read_modules(self) -> None:
        if self._observer is not None:
            self.record.observed = list(self._observer.calls.values())
        if self.tracker is None:
            return
        if self.kind in ("ours", "channel"):
            self.record.anomalies = self.tracker._native.anomalies()
        for stats in self.tracker.memory_tracking.values():
            name = stats.mod_fqn
            while name in self.record.states:
                name += " (same name)"
            self.record.states[name] = {
                state.value: [sum(device["Total"] for device in call.values()) for call in calls]
                for state, calls in stats.snapshots.items()
            }
            self.record.sizes[name] = {
                key: getattr(stats, key) for key in SIZES if hasattr(stats, key)
            }


def total(output: Any) -> torch.Tensor:
    """A loss from all tensors of an output."""
    if isinstance(output, torch.Tensor):
        return output.sum()
    values = list(output.values() if isinstance(output, dict) else output)
    loss = total(values[0])
    for value in values[1:]:
        loss = loss + total(value)
    return loss


Scenario = Callable[[Run], object]


class Scenarios(dict[str, Scenario]):
    def add(self, scenario: Scenario) -> Scenario:
        """A decorator."""
        self[scenario.__name__] = scenario
        return scenario


@contextmanager
def _no_collections() -> Iterator[None]:
    """Reference cycles (checkpoints make some) are freed at the same moments in every run."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _order_storages(find: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
    """Makes upstream deterministic. It takes the first storage of a set that it knows, and the
    order of a set depends on addresses. This set yields the smallest storage first."""
    return lambda tensor: sorted(find(tensor), key=torch.UntypedStorage.nbytes)


def run_scenario(kind: Kind, scenario: Scenario, *, seed: int = 0) -> Record:
    torch.manual_seed(seed)
    with _no_collections(), counting() as allocator, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        resize = torch.UntypedStorage.resize_
        find_storages = upstream.get_untyped_storages
        upstream.get_untyped_storages = _order_storages(find_storages)
        run = Run(kind, allocator)
        try:
            kept = scenario(run)
            run.read_modules()
            del kept
        except Exception as error:
            run.record.error = error.with_traceback(None)
        finally:
            if kind == "upstream":  # leaves its patches behind in some cases
                torch.UntypedStorage.resize_ = resize  # type: ignore[method-assign]
            upstream.get_untyped_storages = find_storages
    run.record.warnings = [str(line.message) for line in caught]
    return run.record
