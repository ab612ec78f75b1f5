# SPDX-License-Identifier: BSD-3-Clause
"""Models under the options of `fully_shard`, and what a few steps of them say."""

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
from runs import Split, read_split
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._composable import checkpoint
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    fully_shard,
)
from torch.distributed.tensor import DTensor, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

WIDTH = 64
BLOCKS = 3
BLOCK_NUMEL = 2 * (WIDTH * WIDTH + WIDTH)
"""of one Block"""


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


# Made once for a world: it cannot be made under fake mode.


@functools.cache
def flat_mesh() -> DeviceMesh:
    return init_device_mesh("cpu", (dist.get_world_size(),))


@functools.cache
def two_level_mesh() -> DeviceMesh:
    size = dist.get_world_size()
    shape = (2, size // 2) if size % 2 == 0 else (1, size)
    return init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard"))


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


def shard_all(model: Net, **options: Any) -> Net:
    options = {"mesh": flat_mesh(), **options}
    for block in model.blocks:
        fully_shard(block, **options)
    return fully_shard(model, **options)


def train(model: nn.Module, x: torch.Tensor, step: int) -> torch.Tensor:
    loss = model(x).float().sum()
    loss.backward()
    return loss


def _accumulate(model: nn.Module, x: torch.Tensor, step: int) -> torch.Tensor:
    for is_last in (False, True):
        model.set_requires_gradient_sync(is_last)  # type: ignore[operator]
        loss = train(model, x, step)
    return loss


def _late_all_reduce(model: nn.Module, x: torch.Tensor, step: int) -> torch.Tensor:
    for is_last in (False, True):
        model.set_requires_all_reduce(is_last)  # type: ignore[operator]
        loss = train(model, x, step)
    return loss


def _user_unshard(model: nn.Module, x: torch.Tensor, step: int) -> torch.Tensor:
    for block in model.blocks:  # type: ignore[union-attr]
        block.unshard()
    return train(model, x, step)


def _evaluate(model: nn.Module, x: torch.Tensor, step: int) -> torch.Tensor:
    with torch.no_grad():
        model(x)
    return train(model, x, step)


def _prefetching() -> Net:
    model = shard_all(Net())
    for i in range(BLOCKS - 1):
        model.blocks[i].set_modules_to_forward_prefetch([model.blocks[i + 1]])
        model.blocks[i + 1].set_modules_to_backward_prefetch([model.blocks[i]])
    return model


def _changed(**setters: Any) -> Callable[[], Net]:
    def make() -> Net:
        model = shard_all(Net())
        for name, value in setters.items():
            getattr(model, name)(value)
        return model

    return make


def _one_group() -> Net:
    model = Net()
    for block in model.blocks:
        fully_shard(block, mesh=flat_mesh())
    fully_shard([model.norm, model.head], mesh=flat_mesh())
    return fully_shard(model, mesh=flat_mesh())


def _checkpointed(how: Callable[[nn.Module], Any], *, is_wrapper: bool) -> Callable[[], Net]:
    def make() -> Net:
        model = Net()
        for i, block in enumerate(model.blocks):
            if is_wrapper:
                model.blocks[i] = how(block)
            else:
                how(block)
        return shard_all(model)

    return make


def _frozen() -> Net:
    model = Net()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("narrow" not in name)
    return shard_all(model)


def _tied() -> Net:
    model = Net()
    for block in model.blocks:
        block.narrow.weight = block.wide.weight
    return shard_all(model)


def _ignored() -> Net:
    model = Net()
    return shard_all(model, ignored_params={model.head.weight})


HALF = torch.bfloat16
Make = Callable[[], Net]
Train = Callable[[nn.Module, torch.Tensor, int], torch.Tensor]
CASES: dict[str, tuple[Make, Train]] = {
    "plain": (lambda: shard_all(Net()), train),
    "root_only": (lambda: fully_shard(Net(), mesh=flat_mesh()), train),
    "one_group_of_two_modules": (_one_group, train),
    "keeps_unsharded": (lambda: shard_all(Net(), reshard_after_forward=False), train),
    "mixed_precision": (
        lambda: shard_all(Net(), mp_policy=MixedPrecisionPolicy(HALF, torch.float32)),
        train,
    ),
    "half_reduction": (
        lambda: shard_all(Net(), mp_policy=MixedPrecisionPolicy(HALF, HALF, HALF)),
        train,
    ),
    "offload": (lambda: shard_all(Net(), offload_policy=CPUOffloadPolicy(False)), train),
    "hsdp": (lambda: shard_all(Net(), mesh=two_level_mesh()), train),
    "hsdp_late_all_reduce": (lambda: shard_all(Net(), mesh=two_level_mesh()), _late_all_reduce),
    "accumulation": (lambda: shard_all(Net()), _accumulate),
    "accumulation_in_float": (
        lambda: shard_all(Net(), mp_policy=MixedPrecisionPolicy(HALF, torch.float32)),
        _accumulate,
    ),
    "user_unshard": (lambda: shard_all(Net()), _user_unshard),
    "evaluation": (lambda: shard_all(Net()), _evaluate),
    "prefetching": (_prefetching, train),
    "stays_unsharded_in_backward": (_changed(set_reshard_after_backward=False), train),
    "two_input_buffers": (_changed(set_reduce_scatter_max_input_buffers=2), train),
    "checkpoint": (_checkpointed(checkpoint, is_wrapper=False), train),
    "checkpoint_wrapper": (_checkpointed(checkpoint_wrapper, is_wrapper=True), train),
    "frozen": (_frozen, train),
    "tied": (_tied, train),
    "ignored": (_ignored, train),
}
ONLY_IN_A_WORLD_OF_8: dict[str, tuple[Make, Train]] = {
    "resharded_to_2": (lambda: shard_all(Net(), reshard_after_forward=2), train),
}


def by_columns() -> Net:
    """Where it can be: even shards are needed."""
    model = Net()
    for block in model.blocks:
        fully_shard(
            block, mesh=flat_mesh(), shard_placement_fn=lambda p: Shard(1) if p.ndim == 2 else None
        )
    return fully_shard(model, mesh=flat_mesh())


ONLY_IN_A_WORLD_OF_8["by_columns"] = (by_columns, train)


@dataclass
class Run:
    marks: list[Split] = field(default_factory=list)
    peak: Split = field(default_factory=dict)
    allocated: list[int] = field(default_factory=list)
    allocated_peak: int = 0
    units: list[dict[str, Any]] = field(default_factory=list)
    parameters: list[torch.Tensor] = field(default_factory=list)


def run(
    case: tuple[Make, Train],
    make_tracker: Callable[[FSDPModule, torch.optim.Optimizer], Any] | None,
    *,
    steps: int = 2,
    is_fake: bool = False,
) -> Run:
    """Marks are after entry, after each backward and after each optimizer step."""
    make, train_step = case
    result = Run()
    gc.collect()  # of an earlier model: it would be freed under the eyes of the allocator
    torch.manual_seed(0)
    mode: AbstractContextManager[Any] = FakeTensorMode() if is_fake else nullcontext()
    flat_mesh()
    two_level_mesh()
    with mode, counting() as allocator:
        model, x = make(), torch.randn(8, WIDTH)
        optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
        tracker = make_tracker(model, optimizer) if make_tracker else None  # type: ignore[arg-type]
        if tracker is not None:
            tracker.track_inputs((x,))
        with tracker or nullcontext():
            base = allocator.read().storage_bytes
            if tracker is not None:
                base -= read_split(tracker.get_tracker_snapshot())["Total"]
            allocator.restart()

            def mark() -> None:
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
            if tracker is not None:
                result.peak = read_split(tracker.get_tracker_snapshot("peak"))
                result.units = getattr(tracker, "units", list)()
        if not is_fake:
            result.parameters = [local_part(p).clone() for p in model.parameters()]
    return result


def local_part(parameter: torch.Tensor) -> torch.Tensor:
    data = parameter.detach()
    return data.to_local() if isinstance(data, DTensor) else data
