# SPDX-License-Identifier: BSD-3-Clause
"""Applies a plan to a model: tensor parallelism, checkpointing, sharding, optimizer."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from tidegauge.estimation.adapters import add_adapters
from tidegauge.estimation.blocks import find_blocks, find_parts, find_units, parameter_share
from tidegauge.estimation.checkpointing import WatchBlock, checkpoint_blocks
from tidegauge.estimation.contract import Contract
from tidegauge.estimation.plan import Plan, find_dtype
from tidegauge.trackers.fsdp2_mem_tracker import param_groups_of

_EXPERTS = "experts"  # the dimension of a mesh


@dataclass(frozen=True)
class Layout:
    """The parts of the model that a plan works on.

    `block_share` and `split_share` are fractions of all parameters: those in blocks, and those
    that tensor parallelism splits. `tensor_sizes`: for each position in the mesh of tensor
    parallelism, the elements of each split parameter. `unit_count`: FSDP2 units with the root, of a
    pipeline those of the rank. `stage_count`: of the pipeline. `part_count`: modules that are
    checkpointed instead of blocks, if the model has none. `expert_share`: the fraction of the
    parameters that is in experts which ranks share.
    """

    block_count: int
    block_share: float
    unit_count: int = 0
    split_share: float = 0.0
    tensor_sizes: tuple[tuple[int, ...], ...] = ((),)
    stage_count: int = 0
    part_count: int = 0
    expert_share: float = 0.0

    def describe(self, plan: Plan) -> str:
        """`32 blocks with 87 % of the parameters, 33 FSDP2 units`, or what the plan uses of it."""
        parts = []
        if plan.is_sharded or plan.ac != "none" or self.stage_count:
            if self.block_count:
                blocks = "1 block" if self.block_count == 1 else f"{self.block_count} blocks"
                parts.append(f"{blocks} with {_percent(self.block_share)} of the parameters")
            else:
                parts.append("no blocks found (define blocks(model))")
                if self.part_count:
                    parts.append(f"its {self.part_count} modules with submodules are checkpointed")
        if self.stage_count:
            parts.append(f"{self.stage_count} stages")
        if plan.is_sharded:
            parts.append(f"{self.unit_count} FSDP2 unit{'' if self.unit_count == 1 else 's'}")
        if plan.tp > 1:
            share = _percent(self.split_share)
            parts.append(f"{share} of the parameters split by tensor parallelism")
        if plan.ep > 1:
            parts.append(f"{_percent(self.expert_share)} of the parameters in shared experts")
        return ", ".join(parts)


def _percent(share: float) -> str:
    """Rounded down, so that 100 % is all of them."""
    return f"{int(share * 1000 + 1e-6) / 10:g} %"


def blocks_of(contract: Contract, model: nn.Module) -> list[nn.Module]:
    """The blocks that the contract names, or else those that the model seems to have."""
    return list(contract.blocks(model)) if contract.blocks else find_blocks(model)


def checkpointed_of(contract: Contract, model: nn.Module) -> list[nn.Module]:
    """What a plan checkpoints one by one: the blocks, or the parts of a model without blocks."""
    return blocks_of(contract, model) or find_parts(model)


def prepare_model(
    contract: Contract,
    plan: Plan,
    model: nn.Module,
    device: str,
    watch: WatchBlock | None = None,
) -> Layout:
    """Applies the parts of the plan in the order that torch requires.

    `watch`: replaces the forward of checkpointed blocks.
    """
    layout = convert(contract, plan, model)
    blocks = blocks_of(contract, model)
    meshes = make_meshes(plan, device)
    experts: Sequence[nn.Module] = ()
    if plan.ep > 1:
        experts = share_experts(contract, plan, model, device, meshes["tp"])
        layout = replace(layout, expert_share=parameter_share(model, experts))
    if plan.tp > 1:
        parallelize(contract, model, meshes["tp"])
        layout = describe_split(layout, plan, model)
    if plan.ac != "none":
        parts = checkpointed_of(contract, model)
        if not parts:
            raise ValueError(
                f"{contract.name} has no list of blocks to checkpoint; define blocks(model)"
            )
        checkpoint_blocks(parts, plan.ac, watch)
        layout = replace(layout, part_count=0 if blocks else len(parts))
    if plan.is_sharded:
        if experts:
            shard_experts(plan, experts, device)
        shard = bind_shard(plan, meshes["data"])
        shard_units(contract, plan, model, blocks, shard)
        if contract.shard is None:
            shard(model)
        layout = replace(layout, unit_count=sum(1 for _ in param_groups_of(model)))
    return layout


def convert(contract: Contract, plan: Plan, model: nn.Module) -> Layout:
    """The dtype and the adapters of the plan."""
    blocks = blocks_of(contract, model)
    layout = Layout(len(blocks), parameter_share(model, blocks))
    if plan.dtype:
        model.to(find_dtype(plan.dtype))
    if plan.lora:
        add_adapters(model, plan.lora, is_cast=not plan.is_sharded)
    return layout


def make_meshes(plan: Plan, device: str) -> dict[str, Any]:
    """ "data" for FSDP2, of one dimension or two, "tp" and "pp". The ranks of "tp" are neighbours,
    those of "pp" are the farthest apart."""
    if plan.dp or (plan.world_size == 1 and not plan.is_sharded):
        return {}
    from torch.distributed.device_mesh import init_device_mesh

    sizes = {"copies": plan.copies, "shards": plan.data_shards, "tp": plan.tp}
    if plan.pp > 1:
        sizes = {"pp": plan.pp, **sizes}
    mesh = init_device_mesh(device, tuple(sizes.values()), mesh_dim_names=tuple(sizes))
    meshes = {"data": mesh["copies", "shards"] if plan.hsdp else mesh["shards"], "tp": mesh["tp"]}
    return meshes if plan.pp == 1 else {**meshes, "pp": mesh["pp"]}


def parallelize(contract: Contract, model: nn.Module, mesh: Any) -> None:
    if contract.parallelize is not None:
        contract.parallelize(model, mesh)
        return
    from torch.distributed.tensor.parallel import parallelize_module

    if contract.tensor_parallel_plan is None:
        raise ValueError(
            f"tp requires a function tensor_parallel_plan(model) in {contract.name} that returns a "
            "plan for parallelize_module, or parallelize(model, mesh)"
        )
    parallelize_module(model, mesh, dict(contract.tensor_parallel_plan(model)))


def make_sequence_mesh(plan: Plan, device: str) -> Any:
    """The ranks that share each sequence. Those of "tp" are neighbours."""
    from torch.distributed.device_mesh import init_device_mesh

    names = ("batches", "sequence", "tp")
    sizes = (plan.copies * plan.shards, plan.cp, plan.tp)
    return init_device_mesh(device, sizes, mesh_dim_names=names)["sequence"]


def _make_expert_mesh(plan: Plan, device: str) -> Any:
    """All ranks again; those that share the experts are neighbours."""
    from torch.distributed.device_mesh import init_device_mesh

    sizes = (plan.copies, plan.expert_shards, plan.ep)
    return init_device_mesh(device, sizes, mesh_dim_names=("copies", "shards", _EXPERTS))


def share_experts(
    contract: Contract, plan: Plan, model: nn.Module, device: str, tp_mesh: Any
) -> Sequence[nn.Module]:
    """Gives each rank its experts. Returns the modules that have them."""
    if contract.parallelize_experts is None:
        raise ValueError(
            f"ep requires a function parallelize_experts(model, mesh, tp_mesh) in {contract.name} "
            "that shards the experts over the mesh, exchanges tokens, and returns the modules with "
            "experts"
        )
    mesh = _make_expert_mesh(plan, device)[_EXPERTS]
    return contract.parallelize_experts(model, mesh, tp_mesh if plan.tp > 1 else None)


def shard_experts(plan: Plan, experts: Sequence[nn.Module], device: str) -> None:
    """Over the ranks with the same experts; each expert has tokens of all ranks."""
    mesh = _make_expert_mesh(plan, device)
    shard = bind_shard(plan, mesh["copies", "shards"] if plan.hsdp else mesh["shards"])
    for module in experts:
        shard(module)
        unit: Any = module
        unit.set_gradient_divide_factor(float(plan.copies * plan.data_shards))
        unit.set_force_sum_reduction_for_comms(True)  # as only NCCL divides while it reduces


def is_of_experts(parameter: Any) -> bool:
    """True if the parameter is a part of the experts of a rank."""
    mesh = getattr(parameter, "device_mesh", None)
    return mesh is not None and _EXPERTS in (mesh.mesh_dim_names or ())


def group_by_mesh(parameters: Iterable[nn.Parameter]) -> list[list[nn.Parameter]]:
    """foreach ops and norms cannot mix DTensors of different meshes."""
    groups: dict[Any, list[nn.Parameter]] = {}
    for each in parameters:
        groups.setdefault(getattr(each, "device_mesh", None), []).append(each)
    return [*groups.values()]


def describe_split(layout: Layout, plan: Plan, model: nn.Module) -> Layout:
    return replace(
        layout, split_share=_split_share(model), tensor_sizes=_tensor_sizes(model, plan.tp)
    )


def _split_share(model: nn.Module) -> float:
    parameters = [*model.parameters()]
    split = sum(each.numel() for each in parameters if _split_dims(each))
    return split / max(sum(each.numel() for each in parameters), 1)


def _split_dims(parameter: nn.Parameter) -> list[int]:
    """Of tensor parallelism."""
    if is_of_experts(parameter):
        return []
    return [each.dim for each in getattr(parameter, "placements", ()) if hasattr(each, "dim")]


def _tensor_sizes(model: nn.Module, ranks: int) -> tuple[tuple[int, ...], ...]:
    """DTensor splits as torch.chunk does: the last ranks may have less, or nothing."""
    rows = []
    for parameter in model.parameters():
        for dim in _split_dims(parameter):
            size = parameter.shape[dim]
            chunk = -(-size // ranks)
            rest = parameter.numel() // max(size, 1)
            rows.append(
                [rest * max(0, min(chunk, size - chunk * position)) for position in range(ranks)]
            )
    return tuple(zip(*rows, strict=True)) if rows else ((),) * ranks


def bind_shard(plan: Plan, mesh: Any) -> Callable[..., Any]:
    """`fully_shard` with the options of the plan."""
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
    return functools.partial(fully_shard, **options)


def shard_units(
    contract: Contract,
    plan: Plan,
    model: nn.Module,
    blocks: Sequence[nn.Module],
    shard: Callable[..., Any],
) -> None:
    """Shards all units, or all but the root if the contract does not say how."""
    if contract.shard is not None:
        if plan.wrap > 1:
            raise ValueError(f"wrap={plan.wrap} has no effect: {contract.name} defines shard()")
        contract.shard(model, shard)
        return
    for unit in find_units(model, blocks, plan.wrap):
        shard(unit[0] if len(unit) == 1 else unit)


def autocast(plan: Plan, device: str) -> torch.autocast:
    """For a forward. FSDP2 converts parameters instead."""
    is_on = plan.compute_dtype is not None and not plan.is_sharded
    return torch.autocast(device, plan.compute_dtype, enabled=is_on)


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
    parameters: Any = [each for each in model.parameters() if each.requires_grad]
    if plan.ep > 1:
        parameters = [{"params": group} for group in group_by_mesh(parameters)]
    if plan.zero:
        from torch.distributed.optim import ZeroRedundancyOptimizer

        return ZeroRedundancyOptimizer(
            parameters, kind.find_class(), lr=1e-3, **kind.options, **options
        )
    return kind.make(parameters, lr=1e-3, **options)


def replicate(plan: Plan, model: nn.Module) -> nn.Module:
    """The module to call: with `dp` one that reduces the gradients of all ranks."""
    if not plan.dp:
        return model
    from torch.nn.parallel import DistributedDataParallel

    return DistributedDataParallel(model)
