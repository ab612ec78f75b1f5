# SPDX-License-Identifier: BSD-3-Clause
"""Runs and records a plan on one simulated rank until the steps repeat."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, cast

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from tidegauge.allocator import DeviceModel
from tidegauge.estimation.contract import Contract, ContractError
from tidegauge.estimation.pipeline import Pipeline, prepare_pipeline
from tidegauge.estimation.plan import Plan
from tidegauge.estimation.preparation import (
    Layout,
    checkpointed_of,
    is_of_experts,
    make_optimizer,
    prepare_model,
    replicate,
)
from tidegauge.estimation.step_record import StepRecord, StepRecorder
from tidegauge.estimation.steps import Progress, Trained, train
from tidegauge.report.text import describe_failures
from tidegauge.simulation import Simulation, simulate
from tidegauge.trackers.fsdp2_mem_tracker import FSDPMemTracker, param_groups_of
from tidegauge.trackers.mem_tracker import MemTracker
from tidegauge.trackers.memory_recorder import MemoryRecorder


@dataclass(frozen=True)
class Claim:
    """The device that a simulation claims to be, and how it then differs from a GPU."""

    device: str
    notes: tuple[str, ...] = ()
    capability: tuple[int, int] | None = None
    multiprocessors: int | None = None

    def for_device(self, device: DeviceModel | None) -> Claim:
        """Kernels depend on the device."""
        if device is None or self.device == "cpu":
            return self
        capability = (device.compute, device.compute_minor)
        return replace(self, capability=capability, multiprocessors=device.multiprocessors)

    @property
    def facts(self) -> dict[str, str]:
        """For the trace. Kernels of a simulated GPU request their workspaces."""
        on_gpu = {} if self.device == "cpu" else {"workspaces": "requested"}
        return {"simulated": self.device, **on_gpu}


def claim_device(wanted: str) -> Claim:
    """Raises NotImplementedError if a GPU is wanted and cannot be simulated."""
    if wanted == "cpu":
        return Claim("cpu", (_ON_CPU,))
    try:
        with simulate(device="cuda"):  # raises if it cannot
            return Claim("cuda")
    except (NotImplementedError, RuntimeError) as error:
        raise NotImplementedError(
            f"cannot simulate a GPU: {error}; for a rougher estimate with CPU kernels use "
            "--simulate cpu (in Python simulated_device='cpu')"
        ) from error


_ON_CPU = (
    "Simulated with CPU kernels: saved tensors and attention kernels can differ from a GPU's. "
    "Optimizers use their foreach implementation, as on a GPU."
)


@dataclass(frozen=True)
class Run:
    """One rank of a plan, with its events.

    `like_ranks`: the ranks with shards of equal sizes. `largest_rank`: one with the largest shards.
    """

    plan: Plan
    rank: int
    like_ranks: tuple[int, ...]
    largest_rank: int
    device: str
    optimizer: str
    parameter_count: int
    parameter_dtypes: tuple[str, ...]
    layout: str
    trained: Trained
    recorder: MemoryRecorder
    notes: tuple[str, ...]
    step: StepRecord


def run_plan(
    contract: Contract,
    plan: Plan,
    rank: int,
    claim: Claim,
    progress: Progress,
) -> Run:
    """Raises ModelError if the program fails, ValueError if it does not support the plan."""
    if plan.offload and claim.device == "cpu":
        raise NotImplementedError(
            "offload is not supported when the CPU is simulated: host and device memory would be "
            "the same"
        )
    if plan.cp > 1:
        if claim.device == "cpu":
            raise NotImplementedError(
                "cp is not supported when the CPU is simulated: torch's ring attention has no "
                "kernel for it"
            )
        contract = contract.with_whole_inputs or contract
    if plan.optimizer:
        plan.optimizer_kind.find_class()  # an import of a package should not be simulated
    settings = contract.resolve(dict(plan.settings))
    is_group_needed = plan.is_sharded or plan.dp > 0 or plan.world_size > 1
    world_size = plan.world_size if is_group_needed else None
    if plan.zero:
        # An older torch compiles functions in this import, some of which a simulation replaces.
        import_module("torch.distributed.optim")
    with (
        contextlib.redirect_stdout(sys.stderr),  # standard output is for our results
        simulate(
            claim.device,
            world_size,
            rank,
            item=_item(plan),
            routing=_routing(plan),
            capability=claim.capability,
            multiprocessors=claim.multiprocessors,
        ) as simulation,
    ):
        progress("building the model")
        with contract.wrap_errors("build_model"), _on(claim.device):
            model = contract.build_model(settings)
        if not isinstance(model, nn.Module):
            raise ContractError(
                f"build_model of {contract.name} returned a {type(model).__name__} (expected a "
                "torch.nn.Module)"
            )
        parameter_count = sum(each.numel() for each in model.parameters())
        if not parameter_count:
            raise ContractError(f"the model of {contract.name} has no parameters to train")
        called: nn.Module | Pipeline
        if plan.pp > 1:
            inputs = _make_inputs(contract, settings, claim)
            with contract.wrap_errors("the pipeline", let_pass=_OF_PLANS), _on(claim.device):
                called = prepare_pipeline(contract, plan, model, inputs, claim.device)
            steps = StepRecorder(called.model, called.blocks)
            held = (inputs, called.inputs)
            model, inputs, layout = called.model, called.inputs, called.layout
            with contract.wrap_errors("make_optimizer"):
                optimizer = make_optimizer(contract, plan, model, claim.device)
        else:
            steps = StepRecorder(model, checkpointed_of(contract, model))
            with contract.wrap_errors("sharding", let_pass=_OF_PLANS):
                layout = prepare_model(contract, plan, model, claim.device, steps.watch)
            with contract.wrap_errors("make_optimizer"):
                optimizer = make_optimizer(contract, plan, model, claim.device)
            inputs = held = _make_inputs(contract, settings, claim)
        recorder = MemoryRecorder(
            {
                "rank": str(rank),
                "world_size": str(plan.world_size),
                **claim.facts,
            }
        )
        tracker = _make_tracker(plan, model, optimizer, held, recorder, claim)
        with tracker:
            if plan.pp == 1:
                with contract.wrap_errors("DistributedDataParallel"):
                    called = replicate(plan, model)
            with steps:
                trained = train(
                    contract,
                    plan,
                    called,
                    optimizer,
                    inputs,
                    tracker,
                    claim.device,
                    progress,
                    steps,
                    recorder.source.event_count,
                )
            record = steps.finish(tracker, claim.device)
        sizes = _sizes_of_ranks(plan, rank, layout, model, optimizer)
        return Run(
            plan=plan,
            rank=rank,
            like_ranks=_ranks_like(plan, sizes, rank),
            largest_rank=_largest_rank(sizes),
            device=claim.device,
            optimizer=type(optimizer).__name__,
            parameter_count=parameter_count,
            parameter_dtypes=_list_dtypes(model),
            layout=layout.describe(plan),
            trained=trained,
            recorder=recorder,
            notes=(*_describe_faults(tracker), *_describe_streams(simulation), *simulation.notes),
            step=record,
        )


_OF_PLANS = (ValueError, NotImplementedError)


def _make_inputs(contract: Contract, settings: Any, claim: Claim) -> Any:
    with contract.wrap_errors("make_inputs"), _on(claim.device):
        inputs = contract.make_inputs(settings)
    _check_inputs(contract, inputs)
    return inputs


def _check_inputs(contract: Contract, inputs: Any) -> None:
    """Raises ContractError if nothing would be trained, for example with a batch of 0."""
    tensors = [each for each in tree_leaves(inputs) if isinstance(each, torch.Tensor)]
    if tensors and not any(each.numel() for each in tensors):
        shape = list(tensors[0].shape)
        raise ContractError(
            f"make_inputs of {contract.name} returned an empty tensor {shape} (expected at least "
            "one element; check --set batch)"
        )


def _list_dtypes(model: nn.Module) -> tuple[str, ...]:
    """The dtypes of the parameters, the one with the most elements first."""
    counts: Counter[str] = Counter()
    for each in model.parameters():
        counts[str(each.dtype).removeprefix("torch.")] += each.numel()
    return tuple(name for name, _ in counts.most_common())


def _item(plan: Plan) -> Any:
    """The value that `item()` returns. 1.0 if the optimizer reads values, which do not matter."""
    if plan.item:
        return float(plan.item)
    return 1.0 if plan.optimizer_kind.reads_values else "error"


def _routing(plan: Plan) -> str | int | None:
    return int(plan.routing) if plan.routing.isdecimal() else plan.routing or None


def _on(device: str) -> contextlib.AbstractContextManager[Any]:
    """The default device for tensors that the program creates."""
    return contextlib.nullcontext() if device == "cpu" else torch.device(device)


def _make_tracker(
    plan: Plan,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    inputs: Any,
    recorder: MemoryRecorder,
    claim: Claim,
) -> MemTracker:
    tensors = tuple(leaf for leaf in tree_leaves(inputs) if isinstance(leaf, torch.Tensor))
    has_workspaces = claim.device != "cpu"
    if plan.is_sharded:
        tracker = FSDPMemTracker(model, optimizer, record=recorder, allocator=has_workspaces)
        tracker.track_inputs(tensors)
        return tracker
    plain = MemTracker(record=recorder, allocator=has_workspaces)
    plain.track_external(model, optimizer, *tensors)
    return plain


def _describe_faults(tracker: MemTracker) -> tuple[str, ...]:
    anomalies, first_anomaly = tracker._native.anomalies()
    failures, first_failure = tracker._native.failures()
    notes = []
    if anomalies:
        notes.append(f"{anomalies:,} events contradict others (first: {first_anomaly})")
    if failures:
        notes.append(describe_failures(failures, first_failure))
    return tuple(notes)


def _describe_streams(simulation: Simulation) -> tuple[str, ...]:
    """A trace does not record which stream uses a storage, so a replay cannot delay frees."""
    calls = sum(row.calls for row in simulation.coverage() if row.op == "aten::record_stream")
    if not calls:
        return ()
    return (
        f"record_stream was called {calls:,} times. The estimate, including its upper bound, "
        "assumes that frees do not wait for other streams.",
    )


def shard_sizes(
    model: nn.Module, shards: int, *, of_experts: bool = False
) -> list[tuple[int, ...]]:
    """Bytes of each parameter, by position of the shard. FSDP2 splits as torch.chunk does.

    `of_experts`: only of parameters of experts that ranks share, or only of the others.
    """
    rows: list[list[int]] = []
    for group in param_groups_of(model):
        for parameter in group.fsdp_params:
            if is_of_experts(parameter.sharded_param) != of_experts:
                continue
            size = parameter._orig_size
            dim = parameter.fsdp_placement.dim
            chunk = -(-size[dim] // shards)
            rest = size.numel() // max(size[dim], 1) * parameter.sharded_param.itemsize
            rows.append(
                [
                    rest * max(0, min(chunk, size[dim] - chunk * position))
                    for position in range(shards)
                ]
            )
    return list(zip(*rows, strict=True)) if rows else [()] * shards


def _sizes_of_ranks(
    plan: Plan, rank: int, layout: Layout, model: nn.Module, optimizer: torch.optim.Optimizer
) -> dict[int, tuple[int, ...]]:
    """The sizes of what each rank has of its own: split parameters, shards, optimizer states.

    In a pipeline only of the ranks with the same stages.
    """
    if plan.zero:
        partition = cast(Any, optimizer)._partition_parameters()
        return {
            other: tuple(each.numel() for group in groups for each in group["params"])
            for other, groups in enumerate(partition)
        }
    ranks = ranks_of_stage(plan, rank)
    if plan.dp:
        return dict.fromkeys(ranks, ())
    shards = shard_sizes(model, plan.data_shards) if plan.is_sharded else [()]
    experts = shard_sizes(model, plan.expert_shards, of_experts=True) if plan.ep > 1 else [()]
    return {
        other: layout.tensor_sizes[other % plan.tp]
        + shards[other // plan.tp % len(shards)]
        + experts[other // plan.ep % len(experts)]
        for other in ranks
    }


def _work_of(plan: Plan, rank: int) -> tuple[int, int]:
    """What a rank does otherwise than others with shards of the same sizes: which part of the
    sequence, and which experts it has."""
    return rank // plan.tp % plan.cp, rank % plan.ep


def ranks_of_stage(plan: Plan, rank: int) -> range:
    """The ranks with the same stages of the pipeline; without one, all ranks."""
    count = plan.world_size // plan.pp
    first = rank // count * count
    return range(first, first + count)


def _ranks_like(plan: Plan, sizes: Mapping[int, tuple[int, ...]], rank: int) -> tuple[int, ...]:
    work = _work_of(plan, rank)
    return tuple(
        other
        for other, each in sizes.items()
        if each == sizes[rank] and _work_of(plan, other) == work
    )


def _largest_rank(sizes: Mapping[int, tuple[int, ...]]) -> int:
    return max(sizes, key=lambda rank: sum(sizes[rank]))


def next_rank(plan: Plan, done: Sequence[Run], wanted: str) -> int | None:
    """The next rank to simulate, or None if all requested ranks are done.

    "worst" needs only the first, the last and the largest rank of each place in the pipeline:
    shards of FSDP2 and DTensor get smaller with the rank, and gathered parameters are the same on
    all of them. Random routing gives each of the ranks that share experts other tokens.
    """
    covered = {rank for run in done for rank in run.like_ranks}
    if wanted.isdecimal():
        return None if done else int(wanted)
    world_size = plan.world_size
    if wanted == "worst":
        count = world_size // plan.pp
        firsts = range(0, world_size, count)
        largest = [run.largest_rank for run in done]
        candidates = [*firsts, *(first + count - 1 for first in firsts), *largest]
        if plan.routing.isdecimal():
            candidates += range(plan.ep)
        return next((each for each in candidates if each not in covered), None)
    return next((rank for rank in range(world_size) if rank not in covered), None)
