# SPDX-License-Identifier: BSD-3-Clause
"""Pipeline parallelism: cuts a model into stages between its blocks and runs torch's schedules.

A stage is the whole model without the parameters of the others. Its forward is that of the model:
modules before its first block give what the stage receives, the blocks of other stages pass it on,
and the forward ends after its last block. The last stage computes the loss.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from tidegauge.estimation.checkpointing import checkpoint_blocks
from tidegauge.estimation.contract import Contract
from tidegauge.estimation.plan import SCHEDULES, Plan
from tidegauge.estimation.preparation import (
    Layout,
    autocast,
    bind_shard,
    blocks_of,
    convert,
    describe_split,
    make_meshes,
    parallelize,
    shard_units,
)
from tidegauge.trackers.fsdp2_mem_tracker import param_groups_of

Loss = Callable[[nn.Module, Any], torch.Tensor]


@dataclass(frozen=True)
class Boundary:
    """What stages exchange: the first tensor that each block returns."""

    shape: torch.Size
    dtype: torch.dtype

    def make(self, device: torch.device, *, requires_grad: bool) -> torch.Tensor:
        return torch.empty(self.shape, dtype=self.dtype, device=device, requires_grad=requires_grad)


@dataclass(frozen=True)
class Cut:
    """How a model is cut into stages.

    `members`: for each stage the positions of its blocks. `before`, `after`: the outermost modules
    with parameters that run before and after all blocks; the former with the shape of their output.
    """

    names: tuple[str, ...]
    members: tuple[tuple[int, ...], ...]
    before: Mapping[str, torch.Size]
    after: tuple[str, ...]
    returns_tuple: tuple[bool, ...]
    boundary: Boundary

    def blocks_in(self, model: nn.Module) -> list[nn.Module]:
        return [model.get_submodule(name) for name in self.names]


class _StageDone(Exception):  # noqa: N818, it only ends the forward
    def __init__(self, output: torch.Tensor) -> None:
        self.output = output


class Stage(nn.Module):
    """One stage; its forward takes and returns what the schedule passes between stages."""

    def __init__(self, model: nn.Module, cut: Cut, index: int, inputs: Any, loss: Loss) -> None:
        super().__init__()
        self.model = model
        self._is_first, self._is_last = index == 0, index == len(cut.members) - 1
        self._inputs, self._loss = inputs, loss
        self._received: torch.Tensor | None = None
        self._strip(cut, index)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inputs = self._inputs
        if self._is_first:
            inputs = replace_first_tensor(inputs, x)
        self._received = x
        try:
            return self._loss(self.model, inputs)
        except _StageDone as done:
            return done.output
        finally:
            self._received = None

    def _strip(self, cut: Cut, index: int) -> None:
        """Removes the parameters of other stages, and sets what is called instead."""
        blocks = cut.blocks_in(self.model)
        own = cut.members[index]
        for position, block in enumerate(blocks):
            if position not in own:
                _empty(block)
                is_tuple = cut.returns_tuple[position]
                block.forward = self._make_passing(is_tuple)
        outside = dict(self.model.named_modules())
        if not self._is_first:
            blocks[own[0]].register_forward_pre_hook(self._replace_input, with_kwargs=True)
            for name, shape in cut.before.items():
                _empty(outside[name])
                outside[name].forward = self._make_standing_in(shape)
        if not self._is_last:
            blocks[own[-1]].register_forward_hook(_stop)
            for name in cut.after:
                _empty(outside[name])

    def own_blocks(self, cut: Cut, index: int) -> list[nn.Module]:
        blocks = cut.blocks_in(self.model)
        return [blocks[position] for position in cut.members[index]]

    def _make_passing(self, is_tuple: bool) -> Callable[..., Any]:
        def forward(*args: Any, **kwargs: Any) -> Any:
            leaves, _ = tree_flatten((args, kwargs))
            x = next(each for each in leaves if isinstance(each, torch.Tensor))
            return (x, None) if is_tuple else x

        return forward

    def _make_standing_in(self, shape: torch.Size) -> Callable[..., torch.Tensor]:
        def forward(*args: Any, **kwargs: Any) -> torch.Tensor:
            received = self._received
            assert received is not None
            if shape == received.shape:
                return received
            return received.new_empty(()).expand(shape)

        return forward

    def _replace_input(self, module: nn.Module, args: Any, kwargs: Any) -> Any:
        assert self._received is not None
        return replace_first_tensor((args, kwargs), self._received)


def _stop(module: nn.Module, args: Any, output: Any) -> None:
    raise _StageDone(first_tensor(output))


def _empty(module: nn.Module) -> None:
    """Removes all parameters, buffers and submodules; other attributes stay."""
    module._parameters.clear()
    module._buffers.clear()
    module._modules.clear()


def first_tensor(tree: Any) -> torch.Tensor:
    return next(each for each in tree_flatten(tree)[0] if isinstance(each, torch.Tensor))


def replace_first_tensor(tree: Any, tensor: torch.Tensor) -> Any:
    leaves, spec = tree_flatten(tree)
    position = next(i for i, each in enumerate(leaves) if isinstance(each, torch.Tensor))
    leaves[position] = tensor
    return tree_unflatten(leaves, spec)


def divide_blocks(count: int, stages: int) -> tuple[tuple[int, ...], ...]:
    """Equal numbers of neighbours; what is left over goes to stages in the middle, because those
    at the ends also have the embedding and the head."""
    order = [*range(1, stages - 1), *sorted({0, stages - 1})]
    sizes = [count // stages] * stages
    for position in order[: count % stages]:
        sizes[position] += 1
    starts = [sum(sizes[:position]) for position in range(stages)]
    return tuple(tuple(range(a, a + size)) for a, size in zip(starts, sizes, strict=True))


def find_cut(
    contract: Contract,
    plan: Plan,
    model: nn.Module,
    blocks: Sequence[nn.Module],
    inputs: Any,
    device: str,
) -> Cut:
    """Runs the whole model once without gradients to see what blocks exchange.

    Raises ValueError if the model cannot be cut.
    """
    stages = plan.stage_count
    if len(blocks) < stages:
        raise ValueError(
            f"pp={plan.pp} with the schedule {plan.schedule} needs {stages} stages, but "
            f"{contract.name} has {len(blocks)} blocks (expected at least one for each stage)"
        )
    names = {module: name for name, module in model.named_modules()}
    outside = _find_outside(model, blocks)
    calls: list[tuple[nn.Module, Any]] = []
    hooks = [
        module.register_forward_hook(lambda module, args, output: calls.append((module, output)))
        for module in (*blocks, *outside)
    ]
    try:
        with (
            torch.no_grad(),
            autocast(plan, device),
            contract.wrap_errors("compute_loss"),
        ):
            contract.compute_loss(model, inputs)
    finally:
        for hook in hooks:
            hook.remove()
    order = [module for module, _ in calls]
    if [each for each in order if each in blocks] != [*blocks]:
        raise ValueError(
            f"the blocks of {contract.name} are not called once each and in order, so it cannot be "
            "cut into the stages of a pipeline"
        )
    first = order.index(blocks[0])
    outputs = dict(calls)
    output = first_tensor(outputs[blocks[0]])
    dtype = plan.compute_dtype if plan.is_sharded and plan.compute_dtype else output.dtype
    return Cut(
        names=tuple(names[each] for each in blocks),
        members=divide_blocks(len(blocks), stages),
        before={names[each]: first_tensor(out).shape for each, out in calls[:first]},
        after=tuple(names[each] for each in outside if each not in order[:first]),
        returns_tuple=tuple(isinstance(outputs[each], tuple | list) for each in blocks),
        boundary=Boundary(output.shape, dtype),
    )


def _find_outside(model: nn.Module, blocks: Sequence[nn.Module]) -> list[nn.Module]:
    """The outermost modules with parameters that neither are nor contain a block."""
    containers = {id(each) for each in model.modules() if _contains(each, blocks)}
    found: list[nn.Module] = []

    def visit(module: nn.Module) -> None:
        for child in module.children():
            if id(child) in containers:
                visit(child)
            elif child not in blocks and next(child.parameters(), None) is not None:
                found.append(child)

    visit(model)
    return found


def _contains(module: nn.Module, blocks: Sequence[nn.Module]) -> bool:
    inside = {id(each) for each in module.modules()} - {id(module)}
    return any(id(block) in inside for block in blocks)


class Stages(nn.Module):
    """All stages of a rank. FSDP2 and trackers need one module that contains them."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        super().__init__()
        self.stages = nn.ModuleList(stages)

    def forward(self) -> None:
        raise NotImplementedError("the schedule calls the stages")


@dataclass(frozen=True)
class Pipeline:
    """The stages of a rank and their schedule. `step` is the forward and backward of all
    microbatches."""

    model: Stages
    layout: Layout
    blocks: Sequence[nn.Module]
    inputs: Any  # of all microbatches, as far as this rank has them
    schedule: Any
    is_first: bool
    is_last: bool

    def step(self) -> None:
        arguments = (self.inputs,) if self.is_first else ()
        target = {"target": self.inputs} if self.is_last else {}
        self.schedule.step(*arguments, **target, return_outputs=False)


def prepare_pipeline(
    contract: Contract,
    plan: Plan,
    model: nn.Module,
    inputs: Any,
    device: str,
) -> Pipeline:
    """`inputs`: of one microbatch. Raises ValueError if the model cannot be cut."""
    layout = convert(contract, plan, model)
    meshes = make_meshes(plan, device)
    group = meshes["pp"].get_group()
    position = meshes["pp"].get_local_rank()
    own = stages_of(plan, position)
    copies = [model, *(copy.deepcopy(model) for _ in own[1:])]
    if plan.tp > 1:
        for each in copies:
            parallelize(contract, each, meshes["tp"])
        layout = describe_split(layout, plan, model)
    cut = find_cut(contract, plan, model, blocks_of(contract, model), inputs, device)

    def compute_loss(whole: nn.Module, microbatch: Any) -> torch.Tensor:
        with autocast(plan, device):
            return contract.compute_loss(whole, microbatch)

    stages = []
    for each, index in zip(copies, own, strict=True):
        if plan.ac != "none":
            checkpoint_blocks(cut.blocks_in(each), plan.ac)
        stages.append(Stage(each, cut, index, inputs, compute_loss))
    blocks = [stage.own_blocks(cut, i) for stage, i in zip(stages, own, strict=True)]
    root = Stages(stages)
    if plan.is_sharded:
        shard = bind_shard(plan, meshes["data"])
        for stage, members in zip(stages, blocks, strict=True):
            shard_units(contract, plan, stage.model, members, shard)
            shard(stage)
        shard(root)
        units = sum(1 for _ in param_groups_of(root))
        layout = replace(layout, unit_count=units)
    layout = replace(layout, stage_count=len(cut.members))
    x = first_tensor(inputs)
    whole = torch.cat([x] * plan.microbatch_count)
    is_first, is_last = 0 in own, plan.stage_count - 1 in own
    return Pipeline(
        model=root,
        layout=layout,
        blocks=[*chain.from_iterable(blocks)],
        inputs=whole if is_first or is_last else None,
        schedule=_make_schedule(plan, stages, own, cut, x, group),
        is_first=is_first,
        is_last=is_last,
    )


def stages_of(plan: Plan, position: int) -> list[int]:
    """The stages of a rank by its position in the pipeline."""
    kind = SCHEDULES[plan.schedule]
    if kind.stages_per_rank == 1:
        return [position]
    second = plan.stage_count - 1 - position if kind.is_v_shaped else plan.pp + position
    return [position, second]


def _make_schedule(
    plan: Plan, stages: Sequence[Stage], own: Sequence[int], cut: Cut, x: torch.Tensor, group: Any
) -> Any:
    from torch.distributed.pipelining import PipelineStage, schedules

    device = x.device
    made = []
    for stage, index in zip(stages, own, strict=True):
        is_last = index == plan.stage_count - 1
        made.append(
            PipelineStage(
                stage,
                index,
                plan.stage_count,
                device,
                input_args=x if index == 0 else cut.boundary.make(device, requires_grad=True),
                output_args=torch.empty((), device=device, requires_grad=True)
                if is_last
                else cut.boundary.make(device, requires_grad=True),
                group=group,
            )
        )
    make: Any = getattr(schedules, SCHEDULES[plan.schedule].class_name)
    return make(
        made[0] if SCHEDULES[plan.schedule].stages_per_rank == 1 else made,
        plan.microbatch_count,
        loss_fn=lambda loss, target: loss,
    )
