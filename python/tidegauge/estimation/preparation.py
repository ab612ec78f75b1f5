# SPDX-License-Identifier: BSD-3-Clause
"""Applies a plan to a model: tensor parallelism, checkpointing, sharding, optimizer."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from tidegauge.estimation.contract import Contract
from tidegauge.estimation.plan import Plan, find_dtype

# "selective" keeps the outputs of these ops, which are expensive to recompute.
_KEPT = (
    "mm addmm bmm baddbmm convolution _scaled_mm _scaled_dot_product_flash_attention "
    "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention "
    "_scaled_dot_product_flash_attention_for_cpu"
)


def find_blocks(model: nn.Module) -> list[nn.Module]:
    """The members of each outermost list of modules of one type that have submodules."""
    blocks: list[nn.Module] = []

    def visit(module: nn.Module) -> None:
        for child in module.children():
            members = list(child.children())
            if isinstance(child, nn.ModuleList | nn.Sequential) and _are_alike(members):
                blocks.extend(members)
            else:
                visit(child)

    visit(model)
    return blocks


def _are_alike(modules: Sequence[nn.Module]) -> bool:
    return (
        len(modules) > 1
        and len({type(module) for module in modules}) == 1
        and all(next(module.children(), None) is not None for module in modules)
        and all(next(module.parameters(), None) is not None for module in modules)
    )


def prepare_model(contract: Contract, plan: Plan, model: nn.Module, device: str) -> nn.Module:
    """Applies the parts of the plan in the order that torch requires."""
    blocks = list(contract.blocks(model)) if contract.blocks else find_blocks(model)
    if plan.dtype:
        model.to(find_dtype(plan.dtype))
    meshes = _make_meshes(plan, device)
    if plan.tp > 1:
        _parallelize(contract, model, meshes["tp"])
    if plan.ac != "none":
        if not blocks:
            raise ValueError(
                f"{contract.name} has no list of blocks to checkpoint; define blocks(model)"
            )
        for block in blocks:
            _checkpoint_block(block, is_selective=plan.ac == "selective")
    if plan.is_sharded:
        _shard(contract, plan, model, blocks, meshes["data"])
    return model


def _make_meshes(plan: Plan, device: str) -> dict[str, Any]:
    """ "data" for FSDP2, of one dimension or two, and "tp"; the ranks of "tp" are neighbours."""
    if plan.world_size == 1 and not plan.is_sharded:
        return {}
    from torch.distributed.device_mesh import init_device_mesh

    names = ("copies", "shards", "tp")
    mesh = init_device_mesh(device, (plan.copies, plan.shards, plan.tp), mesh_dim_names=names)
    return {"data": mesh["copies", "shards"] if plan.hsdp else mesh["shards"], "tp": mesh["tp"]}


def _parallelize(contract: Contract, model: nn.Module, mesh: Any) -> None:
    from torch.distributed.tensor.parallel import parallelize_module

    if contract.tensor_parallel_plan is None:
        raise ValueError(
            f"tp requires a function tensor_parallel_plan(model) in {contract.name} that returns a "
            "plan for parallelize_module"
        )
    parallelize_module(model, mesh, dict(contract.tensor_parallel_plan(model)))


@functools.cache
def _kept_ops() -> frozenset[Any]:
    ops = (getattr(torch.ops.aten, name, None) for name in _KEPT.split())
    return frozenset(op.default for op in ops if op is not None and hasattr(op, "default"))


def _policy(context: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    is_kept = op in _kept_ops()
    return CheckpointPolicy.MUST_SAVE if is_kept else CheckpointPolicy.PREFER_RECOMPUTE


def _checkpoint_block(block: nn.Module, *, is_selective: bool) -> None:
    """Checkpoints inside the block's hooks, so FSDP2 gathers it outside, as with a wrapper."""
    run: Callable[..., Any] = functools.partial(checkpoint, block.forward, use_reentrant=False)
    if is_selective:
        run = functools.partial(
            run, context_fn=functools.partial(create_selective_checkpoint_contexts, _policy)
        )
    block.forward = run


def _shard(
    contract: Contract, plan: Plan, model: nn.Module, blocks: Sequence[nn.Module], mesh: Any
) -> None:
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

    reshard = {"auto": None, "yes": True, "no": False}.get(plan.reshard, plan.reshard)
    options: dict[str, Any] = {
        "mesh": mesh,
        "reshard_after_forward": int(reshard) if isinstance(reshard, str) else reshard,
        "mp_policy": MixedPrecisionPolicy(
            param_dtype=plan.compute_dtype, reduce_dtype=plan.reduce_dtype
        ),
    }
    if plan.offload:
        options["offload_policy"] = CPUOffloadPolicy()
    shard = functools.partial(fully_shard, **options)
    if contract.shard is not None:
        contract.shard(model, shard)
        return
    for block in blocks:
        shard(block)
    shard(model)


def make_optimizer(
    contract: Contract, plan: Plan, model: nn.Module, device: str
) -> torch.optim.Optimizer:
    if not plan.optimizer and contract.make_optimizer is not None:
        return contract.make_optimizer(model)
    kind = plan.optimizer_kind
    options = {}
    if kind.has_foreach and plan.tp > 1 and not plan.is_sharded:
        options["foreach"] = False  # foreach ops cannot mix DTensors and plain tensors
    elif kind.has_foreach and device == "cpu":
        options["foreach"] = True  # torch's own choice on a GPU
    parameters = [each for each in model.parameters() if each.requires_grad]
    return kind.make(parameters, lr=1e-3, **options)
