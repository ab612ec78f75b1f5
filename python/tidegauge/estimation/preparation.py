# SPDX-License-Identifier: BSD-3-Clause
"""Makes of a model what a plan says: tensor parallel, checkpointed, sharded, with an optimizer."""

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
from tidegauge.estimation.plan import DTYPES, Plan

# What "selective" keeps: matrix products and attention, dear to compute again. All else is not.
_KEPT = (
    "mm addmm bmm baddbmm convolution _scaled_mm _scaled_dot_product_flash_attention "
    "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention "
    "_scaled_dot_product_flash_attention_for_cpu"
)


def find_blocks(model: nn.Module) -> list[nn.Module]:
    """The members of each list of alike modules with modules of their own, the outermost ones."""
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
    """In the order in which the parts of torch ask for it."""
    blocks = list(contract.blocks(model)) if contract.blocks else find_blocks(model)
    if plan.dtype:
        model.to(DTYPES[plan.dtype])
    meshes = _make_meshes(plan, device)
    if plan.tp > 1:
        _parallelize(contract, model, meshes["tp"])
    if plan.ac != "none":
        if not blocks:
            raise ValueError(
                f"{contract.name} has no list of blocks to checkpoint; give them by a function "
                "blocks(model)"
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
            f"{contract.name} does not say how to split its modules; give tp a function "
            "tensor_parallel_plan(model), which returns what parallelize_module takes"
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
    """Within the hooks of the block, so that FSDP2 gathers it outside, as around a wrapper."""
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


class Stepper:
    """The optimizer, and its step.

    Elementwise optimizers get the local shards as parameters of their own: the same bytes and the
    same operators as on the DTensors, which take seconds to find out that nothing is to be sent.
    """

    def __init__(self, contract: Contract, plan: Plan, model: nn.Module) -> None:
        self._model = model
        self._shards: list[tuple[nn.Parameter, torch.Tensor]] = []
        if not plan.optimizer and contract.make_optimizer is not None:
            self.optimizer = contract.make_optimizer(model)
            return
        parameters: list[torch.Tensor] = [p for p in model.parameters() if p.requires_grad]
        name = plan.optimizer or "adamw"
        if plan.world_size > 1 and name in _ELEMENTWISE:
            parameters = [self._find_shard(parameter) for parameter in parameters]
        self.optimizer = _OPTIMIZERS[name](parameters, lr=1e-3)

    def _find_shard(self, parameter: Any) -> torch.Tensor:
        from torch.distributed.tensor import DTensor

        if not isinstance(parameter, DTensor):
            return parameter  # type: ignore[no-any-return]
        shard = parameter.to_local().detach().requires_grad_()
        self._shards.append((parameter, shard))  # type: ignore[arg-type]
        return shard

    def step(self) -> None:
        for parameter, shard in self._shards:
            grad: Any = parameter.grad
            shard.grad = None if grad is None else grad.to_local()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self._model.zero_grad()


# foreach is what torch chooses by itself on a GPU, for these.
_ELEMENTWISE: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adamw": functools.partial(torch.optim.AdamW, foreach=True),
    "adam": functools.partial(torch.optim.Adam, foreach=True),
    "sgd": functools.partial(torch.optim.SGD, foreach=True),
    "sgd-momentum": functools.partial(torch.optim.SGD, momentum=0.9, foreach=True),
    "rmsprop": functools.partial(torch.optim.RMSprop, foreach=True),
    "adagrad": functools.partial(torch.optim.Adagrad, foreach=True),
}
_OPTIMIZERS = {**_ELEMENTWISE, "adafactor": torch.optim.Adafactor}
