# SPDX-License-Identifier: BSD-3-Clause
"""Options of FSDP2, one by one: how to make a model, and one step of its training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from sharded import (
    BLOCKS,
    WIDTH,
    Block,
    Make,
    Net,
    Train,
    flat_mesh,
    mesh_of,
    shard_all,
    two_level_mesh,
)
from torch import nn
from torch.distributed._composable import checkpoint
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp._fully_shard import _fsdp_common
from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather, ReduceScatter
from torch.distributed.fsdp._fully_shard._fsdp_common import FSDPMeshInfo
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.utils.checkpoint import checkpoint as checkpoint_function
from torch.utils.checkpoint import create_selective_checkpoint_contexts
from torch_version import FEWER_FSDP_SETTINGS, ONE_GROUP_PER_MODULE

HALF = torch.bfloat16


def train(model: nn.Module, x: torch.Tensor, step: int) -> torch.Tensor:
    loss = model(x).float().sum()
    loss.backward()
    return loss


def accumulate(model: nn.Module, x: torch.Tensor, step: int) -> torch.Tensor:
    for is_last in (False, True):
        model.set_requires_gradient_sync(is_last)  # type: ignore[operator]
        loss = train(model, x, step)
    return loss


def _late_all_reduce(model: nn.Module, x: torch.Tensor, step: int) -> torch.Tensor:
    for is_last in (False, True):
        model.set_requires_all_reduce(is_last)  # type: ignore[operator]
        loss = train(model, x, step)
    return loss


def user_unshard(model: nn.Module, x: torch.Tensor, step: int) -> torch.Tensor:
    for block in model.blocks:  # type: ignore[union-attr]
        block.unshard()
    return train(model, x, step)


def evaluate(model: nn.Module, x: torch.Tensor, step: int) -> torch.Tensor:
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


def by_columns() -> Net:
    """Only where possible: it needs even shards."""
    model = Net()
    for block in model.blocks:
        fully_shard(
            block, mesh=flat_mesh(), shard_placement_fn=lambda p: Shard(1) if p.ndim == 2 else None
        )
    return fully_shard(model, mesh=flat_mesh())


def two_groups() -> Net:
    """Biases are sharded over half of the world, so each block has two param groups."""
    half = FSDPMeshInfo(mesh_of("shard"), shard_mesh_dim=0)
    whole = FSDPMeshInfo(flat_mesh(), shard_mesh_dim=0)

    def place(parameter: nn.Parameter) -> Any:
        return _fsdp_common.ShardPlacementResult(Shard(0), whole if parameter.ndim == 2 else half)

    model = Net()
    for block in model.blocks:
        fully_shard(block, mesh=flat_mesh(), shard_placement_fn=place)
    return fully_shard(model, mesh=flat_mesh())


def tensor_parallel(**options: Any) -> Net:
    """The parameters of the blocks are DTensors before FSDP2 shards them."""
    model = Net()
    for block in model.blocks:
        plan = {"wide": ColwiseParallel(), "narrow": RowwiseParallel()}
        parallelize_module(block, mesh_of("shard"), plan)
    return shard_all(model, mesh=mesh_of("replicate"), **options)


class _Pool:
    """A comm that reuses its buffers; FSDP2 may use several at a time."""

    def __init__(self) -> None:
        self._buffers: list[torch.Tensor] = []

    def allocate(
        self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        for buffer in self._buffers:
            storage = buffer.untyped_storage()
            is_free = torch._C._storage_Use_Count(storage._cdata) == 2  # the tensor, and `storage`
            if is_free and buffer.dtype == dtype and buffer.numel() >= size[0]:
                return buffer[: size[0]]
        self._buffers.append(torch.empty(*size, dtype=dtype, device=device))
        return self._buffers[-1][: size[0]]


class PooledAllGather(_Pool, AllGather):
    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        async_op: bool = False,
    ) -> dist.Work | None:
        return dist.all_gather_into_tensor(output_tensor, input_tensor, group, async_op)


class PooledReduceScatter(_Pool, ReduceScatter):
    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> dist.Work | None:
        return dist.reduce_scatter_tensor(output_tensor, input_tensor, op, group, async_op)


def custom_comm() -> Net:
    model = shard_all(Net())
    for module in (*model.blocks, model):
        module.set_custom_all_gather(PooledAllGather())
        module.set_custom_reduce_scatter(PooledReduceScatter())
    return model


class Adapted(nn.Module):
    """LoRA: a frozen layer and a narrow path beside it."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, 4, bias=False)
        self.up = nn.Linear(4, base.out_features, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.up(self.down(x))


def _lora() -> Net:
    model = Net()
    for block in model.blocks:
        block.wide, block.narrow = Adapted(block.wide), Adapted(block.narrow)
    return shard_all(model)


def _with_unused_parameters(*, are_reduced: bool) -> Make:
    def make() -> Net:
        model = Net()
        for block in model.blocks:
            block.never = nn.Linear(WIDTH, WIDTH)
        shard_all(model).set_reduce_scatter_unused_params(are_reduced)
        return model

    return make


def _nested() -> Net:
    model = Net()
    for block in model.blocks:
        fully_shard(block.wide, mesh=flat_mesh())
    return shard_all(model)


def _functions_checkpointed(**options: Any) -> Make:
    """No wrapper modules: `torch.utils.checkpoint` recomputes the forward of a block."""

    class CheckpointedBlock(Block):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = checkpoint_function(super().forward, x, **options)
            return y

    def make() -> Net:
        model = Net()
        model.blocks = nn.ModuleList(CheckpointedBlock() for _ in range(BLOCKS))
        return shard_all(model)

    return make


def _save_products() -> Any:
    return create_selective_checkpoint_contexts([torch.ops.aten.addmm.default])


def _hooked() -> Net:
    """The result of a reduction passes through a user function that makes a tensor."""
    model = shard_all(Net())
    for module in (*model.blocks, model):
        module.set_all_reduce_hook(lambda reduced: reduced.add_(reduced.clone()))
    return model


def _stepped_in_backward() -> Net:
    """Each gradient is used and dropped as soon as it exists."""
    model = shard_all(Net())

    def use(parameter: torch.Tensor) -> None:
        assert parameter.grad is not None
        parameter.data.add_(parameter.grad, alpha=-0.01)
        parameter.grad = None

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(use)
    return model


def _async_unshard(model: nn.Module, x: torch.Tensor, step: int) -> torch.Tensor:
    handles = [block.unshard(async_op=True) for block in model.blocks]  # type: ignore[union-attr]
    for handle in handles:
        handle.wait()
    return train(model, x, step)


def _train_from_a_leaf(model: nn.Module, x: torch.Tensor, step: int) -> torch.Tensor:
    """Reentrant checkpoints have gradients only if an input requires one."""
    return train(model, x.clone().requires_grad_(), step)


def _cast_by_the_blocks() -> Net:
    """The root computes in float: each block casts its inputs and outputs."""
    model = Net()
    policy = MixedPrecisionPolicy(HALF, None, torch.float32, cast_forward_inputs=True)
    for block in model.blocks:
        fully_shard(block, mesh=flat_mesh(), mp_policy=policy)
    return fully_shard(model, mesh=flat_mesh())


def _inference(model: nn.Module, x: torch.Tensor, step: int) -> torch.Tensor:
    """The user gathers parameters that no later forward needs."""
    loss = train(model, x, step)
    model.blocks[0].unshard()  # type: ignore[union-attr, index]
    with torch.no_grad():
        model(x)
    model.blocks[0].reshard()  # type: ignore[union-attr, index]
    return loss


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
    "accumulation": (lambda: shard_all(Net()), accumulate),
    "accumulation_in_float": (
        lambda: shard_all(Net(), mp_policy=MixedPrecisionPolicy(HALF, torch.float32)),
        accumulate,
    ),
    "user_unshard": (lambda: shard_all(Net()), user_unshard),
    "evaluation": (lambda: shard_all(Net()), evaluate),
    "prefetching": (_prefetching, train),
    "stays_unsharded_in_backward": (_changed(set_reshard_after_backward=False), train),
    "two_input_buffers": (_changed(set_reduce_scatter_max_input_buffers=2), train),
    "checkpoint": (_checkpointed(checkpoint, is_wrapper=False), train),
    "checkpoint_wrapper": (_checkpointed(checkpoint_wrapper, is_wrapper=True), train),
    "frozen": (_frozen, train),
    "tied": (_tied, train),
    "ignored": (_ignored, train),
    "nested": (_nested, train),
    "lora": (_lora, train),
    "unused": (_with_unused_parameters(are_reduced=False), train),
    "unused_but_reduced": (_with_unused_parameters(are_reduced=True), train),
    "custom_comm": (custom_comm, train),
    "comm_of_the_process_group": (
        _changed(set_allocate_memory_from_process_group_for_comm=True),
        train,
    ),
    "separate_group_for_reductions": (_changed(set_separate_reduce_scatter_group=True), train),
    "sums_divided": (
        _changed(set_force_sum_reduction_for_comms=True, set_gradient_divide_factor=3.0),
        train,
    ),
    "default_after_forward": (lambda: shard_all(Net(), reshard_after_forward=None), train),
    "keeps_by_setter": (_changed(set_reshard_after_forward=False), train),
    "not_the_last_backward": (_changed(set_is_last_backward=False), train),
    "inputs_cast_by_the_blocks": (_cast_by_the_blocks, train),
    "all_reduce_hook": (_hooked, train),
    "step_in_backward": (_stepped_in_backward, train),
    "async_unshard": (lambda: shard_all(Net()), _async_unshard),
    "inference": (lambda: shard_all(Net()), _inference),
    "checkpoint_function": (_functions_checkpointed(use_reentrant=False), train),
    "checkpoint_reentrant": (_functions_checkpointed(use_reentrant=True), _train_from_a_leaf),
    "checkpoint_selective": (
        _functions_checkpointed(use_reentrant=False, context_fn=_save_products),
        train,
    ),
}
if FEWER_FSDP_SETTINGS:
    for _name in (
        *("two_input_buffers", "unused", "unused_but_reduced"),
        "separate_group_for_reductions",
    ):
        del CASES[_name]
ONLY_IN_A_WORLD_OF_8: dict[str, tuple[Make, Train]] = {
    "resharded_to_2": (lambda: shard_all(Net(), reshard_after_forward=2), train),
    "by_columns": (by_columns, train),
    **({"two_groups": (two_groups, train)} if not ONE_GROUP_PER_MODULE else {}),
    "tensor_parallel": (tensor_parallel, train),
    "tensor_parallel_in_half": (
        lambda: tensor_parallel(mp_policy=MixedPrecisionPolicy(HALF, torch.float32)),
        train,
    ),
}
