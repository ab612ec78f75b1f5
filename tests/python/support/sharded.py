# SPDX-License-Identifier: BSD-3-Clause
"""A model, worlds to shard it in, and the figures of a few steps."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from counting import counting
from one_thread_gloo import settle
from runs import Split, read_split
from shardings import Propagations, counted_propagations, forget_shardings
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch_version import UNWRITTEN_GATHER

WIDTH = 64
BLOCKS = 3
BLOCK_NUMEL = 2 * (WIDTH * WIDTH + WIDTH)
"""parameters of one Block"""


@contextmanager
def world(size: int) -> Iterator[None]:
    """A fake process group: rank 0 of `size`."""
    dist.init_process_group("fake", rank=0, world_size=size, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()
        flat_mesh.cache_clear()
        two_level_mesh.cache_clear()
        mesh_of.cache_clear()


# Made once per world, because it cannot be made under fake mode.


@functools.cache
def flat_mesh() -> DeviceMesh:
    return init_device_mesh("cpu", (dist.get_world_size(),))


@functools.cache
def two_level_mesh() -> DeviceMesh:
    size = dist.get_world_size()
    shape = (2, size // 2) if size % 2 == 0 else (1, size)
    return init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard"))


@functools.cache
def mesh_of(dimension: str) -> DeviceMesh:
    """One dimension of the two."""
    return two_level_mesh()[dimension]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Linear(WIDTH, WIDTH)
        self.narrow = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.narrow(torch.relu(self.wide(x)))


class Net(nn.Module):
    """Blocks with a buffer and a head of an odd size, so that its shards are uneven."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 5)
        self.register_buffer("scale", torch.ones(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x * self.scale.to(x.dtype)))


Make = Callable[[], nn.Module]
Train = Callable[[nn.Module, torch.Tensor, int], torch.Tensor]


def shard_all(model: Net, **options: Any) -> Net:
    options = {"mesh": flat_mesh(), **options}
    for block in model.blocks:
        fully_shard(block, **options)
    return fully_shard(model, **options)


def fully_shard_parts(model: Net, units: str, **options: Any) -> None:
    """`units`: "root" alone, "blocks" as well, the linear layers "nested" in these, or also a
    "pair" of modules in one unit."""
    if units == "nested":
        for block in model.blocks:
            for layer in (each for each in block.modules() if isinstance(each, nn.Linear)):
                fully_shard(layer, **options)
    if units == "pair":
        fully_shard([model.norm, model.head], **options)
    if units == "root":
        fully_shard(model, **options)
    else:
        shard_all(model, **options)


@dataclass
class Run:
    marks: list[Split] = field(default_factory=list)
    peak: Split = field(default_factory=dict)
    allocated: list[int] = field(default_factory=list)
    allocated_peak: int = 0
    """peak of the storages at the ends of operators"""
    allocated_peak_of_all: int = 0
    units: list[dict[str, Any]] = field(default_factory=list)
    parameters: list[torch.Tensor] = field(default_factory=list)
    propagations: Propagations = field(default_factory=Propagations)


def run(
    case: tuple[Make, Train],
    make_tracker: Callable[[FSDPModule, torch.optim.Optimizer], Any] | None,
    *,
    steps: int = 2,
    is_fake: bool = False,
    foreach: bool = False,
    forgets: bool = True,
) -> Run:
    """Marks are after entry, after each backward and after each optimizer step. `forgets`: DTensor
    computes its shardings again."""
    make, train_step = case
    result = Run()
    gc.collect()  # free earlier models before the allocator counts
    torch.manual_seed(0)
    mode: AbstractContextManager[Any] = FakeTensorMode() if is_fake else nullcontext()
    flat_mesh()
    mesh_of("replicate")
    mesh_of("shard")
    settle()
    with mode, counting() as allocator:
        model, x = make(), torch.randn(8, WIDTH)
        optimizer = torch.optim.AdamW(model.parameters(), foreach=foreach)
        tracker = make_tracker(model, optimizer) if make_tracker else None  # type: ignore[arg-type]
        if tracker is not None:
            tracker.track_inputs((x,))
        if forgets:
            forget_shardings()
        with counted_propagations() as result.propagations, tracker or nullcontext():
            settle()
            base = allocator.read().storage_bytes
            if tracker is not None:
                base -= read_split(tracker.get_tracker_snapshot())["Total"]
            allocator.restart()

            def mark() -> None:
                settle()
                result.allocated.append(allocator.read().storage_bytes - base)
                if tracker is not None:
                    result.marks.append(read_split(tracker.get_tracker_snapshot()))

            for step in range(steps):
                mark()
                loss = train_step(model, x, step)
                mark()
                optimizer.step()
                optimizer.zero_grad()
                del loss
                if tracker is not None:
                    tracker.reset_mod_stats()
            result.allocated_peak = allocator.read().storage_peak_bytes - base
            result.allocated_peak_of_all = allocator.read().peak_bytes - base
            if tracker is not None:
                result.peak = read_split(tracker.get_tracker_snapshot("peak"))
                result.units = getattr(tracker, "units", list)()
        if not is_fake:
            result.parameters = [local_part(p).clone() for p in model.parameters()]
    return result


def has_equal_parameters(one: Run, other: Run) -> bool:
    """Older fake process groups do not write what they gather, so values are undefined there."""
    if UNWRITTEN_GATHER:
        return [p.shape for p in one.parameters] == [p.shape for p in other.parameters]
    return all(map(torch.equal, one.parameters, other.parameters))


def local_part(parameter: torch.Tensor) -> torch.Tensor:
    data = parameter.detach()
    return data.to_local() if isinstance(data, DTensor) else data
