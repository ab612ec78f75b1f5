#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Prints, as a JSON list, what tidegauge lacks with the torch of this interpreter.

First come the patches that do not fit this torch. Then each feature runs a small program whose
figures are known: a signature that still fits may hide another meaning. tools/matrix.py writes the
sentences to docs/torch-versions.md.
"""

from __future__ import annotations

import json
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from tidegauge import FSDPMemTracker, MemTracker, ModTracker, read_summary, simulate
from tidegauge._torch.features import missing_features
from torch import distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint

WIDTH = 64
LAYER = (WIDTH * WIDTH + WIDTH) * 4  # bytes of nn.Linear(WIDTH, WIDTH)


class DifferenceError(Exception):
    """A figure that is not the expected one."""


def expect(what: str, found: Any, expected: Any) -> None:
    if found != expected:
        raise DifferenceError(f"{what}: {found} (expected {expected})")


def split_of(tracker: Any, kind: str = "current") -> dict[str, int]:
    """The categories of the only device, without empty ones and the total."""
    snapshots = tracker.get_tracker_snapshot(kind)
    expect("devices", len(snapshots), 1)
    (split,) = snapshots.values()
    return {key.value: size for key, size in split.items() if key != "Total" and size}


def check_tracker(tracker: Any) -> None:
    expect("failures", tracker._native.failures(), (0, ""))
    expect("anomalies", tracker._native.anomalies(), (0, ""))


@contextmanager
def world(size: int) -> Iterator[None]:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=size, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()


def mod_tracker() -> None:
    class Recomputed(nn.Linear):
        def forward(self, x: torch.Tensor) -> Any:
            return checkpoint(super().forward, x, use_reentrant=False)

    calls: list[str] = []
    tracker = ModTracker()
    tracker.register_user_hooks(
        pre_fw_hook=lambda module, _: calls.append(type(module).__name__),
        pre_bw_hook=lambda module, _: calls.append(f"backward of {type(module).__name__}"),
    )
    model = nn.Sequential(Recomputed(4, 4))
    with tracker:
        model(torch.ones(1, 4)).sum().backward()
    backward = ["backward of Sequential", "backward of Recomputed"]
    expect("module calls", calls, ["Sequential", "Recomputed", *backward])


def train(tracker: Any, model: nn.Module, device: str) -> None:
    """One step, and then a gradient that `torch.autograd.grad` returns."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with tracker:
        x = torch.ones(2, WIDTH, device=device)
        model(x).sum().backward()
        optimizer.step()
        del x
        states = {"Parameter": LAYER, "Gradient": LAYER, "Optstate": LAYER}
        expect("a step", split_of(tracker), states)
        optimizer.zero_grad()
        y = torch.ones(2, WIDTH, device=device)
        grads = torch.autograd.grad(model(y).sum(), list(model.parameters()))
        del y
        expect("torch.autograd.grad", split_of(tracker), states)
        del grads
    check_tracker(tracker)


def mem_tracker() -> None:
    model = nn.Linear(WIDTH, WIDTH)
    tracker = MemTracker()
    tracker.track_external(model)
    train(tracker, model, "cpu")


def resized_storages() -> None:
    with MemTracker() as tracker:
        one = torch.ones(8)
        one.untyped_storage().resize_(0)
        expect("after resize_(0)", tracker.get_tracker_snapshot(), {})
        one.untyped_storage().resize_(16)
        expect("after resize_(16)", split_of(tracker), {"Activation": 16})


def compiled_model() -> None:
    figures = []
    for compiles in (False, True):
        model: Any = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH))
        tracker = MemTracker()
        tracker.track_external(model)
        run = torch.compile(model, backend="eager") if compiles else model
        with tracker:
            run(torch.ones(2, WIDTH)).sum().backward()
            figures.append(split_of(tracker))
        check_tracker(tracker)
    expect("a compiled model", figures[1], figures[0])


def fsdp() -> None:
    from torch.distributed.fsdp import fully_shard

    with world(2):
        model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH))
        for layer in model:
            fully_shard(layer)
        fully_shard(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        with FSDPMemTracker(model, optimizer) as tracker:
            for _ in range(2):
                model(torch.ones(2, WIDTH)).sum().backward()
                optimizer.step()
            held = {"Sharded Param": LAYER, "Sharded Grad": LAYER, "OptState": LAYER}
            expect("a step of FSDP2", split_of(tracker), held)
            gathered = split_of(tracker, "peak").get("Unsharded Param", 0)
            expect("gathered at the peak", gathered in (LAYER, 2 * LAYER), True)
            names = sorted(unit["name"] for unit in tracker.units())
        expect("units", names, ["0", "1"])
        check_tracker(tracker)


def dtensor() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    with world(2):
        mesh = init_device_mesh("cpu", (2,))
        with MemTracker() as tracker:
            one = distribute_tensor(torch.ones(WIDTH, WIDTH), mesh, [Shard(0)])
            before = split_of(tracker)["Activation"]
            two: Any = one * 2
            after = split_of(tracker)["Activation"]
        expect("a sharded tensor", after - before, two.to_local().nbytes)
        check_tracker(tracker)


def simulated(device: str) -> None:
    with simulate(device=device):
        model = nn.Linear(WIDTH, WIDTH, device=device)
        tracker = MemTracker()
        tracker.track_external(model)
        train(tracker, model, device)


def trace() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "probe.tide")
        with MemTracker(record=path) as tracker:
            kept = torch.ones(8)
            live = split_of(tracker, "peak")
        del kept
        peaks = [dict(peak.categories) for peak in read_summary(path).peaks]
        expect("a replayed peak", peaks, [live])


PROBES: dict[str, Callable[[], None]] = {
    "ModTracker": mod_tracker,
    "MemTracker": mem_tracker,
    "resized storages": resized_storages,
    "torch.compile under MemTracker": compiled_model,
    "FSDPMemTracker": fsdp,
    "DTensor under MemTracker": dtensor,
    "traces": trace,
    "simulate": lambda: simulated("cpu"),
    "simulate(device='cuda')": lambda: simulated("cuda"),
}


def find_missing() -> Iterator[str]:
    missing = missing_features()
    yield from missing.values()
    for feature, probe in PROBES.items():
        try:
            probe()
        except Exception as error:
            if str(error) not in missing.values():
                text = str(error).partition("\n")[0]
                yield f"{feature} does not work with torch {torch.__version__}: {text}"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps(list(find_missing())))
    sys.exit(0)
