# SPDX-License-Identifier: BSD-3-Clause
"""Runs a plan on one simulated rank, until a step is like the one before, and records it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from tidegauge.estimation.contract import Contract, ContractError
from tidegauge.estimation.plan import Plan
from tidegauge.estimation.preparation import make_optimizer, prepare_model
from tidegauge.simulation import Simulation, simulate
from tidegauge.trackers.fsdp2_mem_tracker import FSDPMemTracker
from tidegauge.trackers.mem_tracker import MemTracker
from tidegauge.trackers.recorder import Recorder

_MOST_STEPS = 6
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Claim:
    """As which device a simulation behaves, and what is different from a GPU therefore."""

    device: str
    notes: tuple[str, ...] = ()


def claim_device(wanted: str | None = None) -> Claim:
    """A GPU where the simulation can be one, else the CPU, unless one is `wanted`."""
    if wanted == "cpu":
        return Claim("cpu", (_ON_CPU,))
    try:
        with simulate(device="cuda"):  # which tries itself
            return Claim("cuda")
    except (NotImplementedError, RuntimeError) as error:
        if wanted is not None:
            raise
        return Claim("cpu", (_ON_CPU, f"No GPU can be simulated here: {error}"))


_ON_CPU = (
    "Simulated with the kernels of the CPU: what they keep and how attention is computed can "
    "differ from a GPU's. Optimizers step over all parameters at once, as they do there."
)


@dataclass(frozen=True)
class Run:
    """One rank of a plan. `trace`: its file. `like_ranks`: those that have shards of its sizes."""

    plan: Plan
    rank: int
    like_ranks: tuple[int, ...]
    device: str
    optimizer: str
    parameter_count: int
    step_count: int
    is_steady: bool
    trace: Path
    notes: tuple[str, ...]


def run_plan(
    contract: Contract, plan: Plan, rank: int, trace: Path, claim: Claim, progress: Progress
) -> Run:
    """ModelError for what the program raises, ValueError for a plan that it cannot follow."""
    if plan.offload and claim.device == "cpu":
        raise NotImplementedError(
            "offload keeps shards on the host, which a simulation of the CPU cannot tell from "
            "the device; leave it out"
        )
    settings = contract.resolve(dict(plan.settings))
    is_group_needed = plan.is_sharded or plan.world_size > 1
    world_size = plan.world_size if is_group_needed else None
    with (
        contextlib.redirect_stdout(sys.stderr),  # ours is for results
        simulate(claim.device, world_size, rank, item=_item(plan)) as simulation,
    ):
        progress("building the model")
        with contract.telling("build_model"), _on(claim.device):
            model = contract.build_model(settings)
        if not isinstance(model, nn.Module):
            raise ContractError(
                f"build_model of {contract.name} returned a {type(model).__name__}; a "
                "torch.nn.Module is expected"
            )
        parameter_count = sum(each.numel() for each in model.parameters())
        if not parameter_count:
            raise ContractError(f"the model of {contract.name} has no parameters to train")
        prepare_model(contract, plan, model, claim.device)
        with contract.telling("make_optimizer"):
            optimizer = make_optimizer(contract, plan, model, claim.device)
        with contract.telling("make_inputs"), _on(claim.device):
            inputs = contract.make_inputs(settings)
        recorder = Recorder(
            trace, overwrite=True, facts={"rank": str(rank), "world_size": str(plan.world_size)}
        )
        tracker = _make_tracker(plan, model, optimizer, inputs, recorder)
        try:
            with tracker:
                step_count, is_steady = _train(
                    contract, plan, model, optimizer, inputs, tracker, claim, progress
                )
        finally:
            recorder.close()
        return Run(
            plan=plan,
            rank=rank,
            like_ranks=_ranks_like(plan, model, rank),
            device=claim.device,
            optimizer=type(optimizer).__name__,
            parameter_count=parameter_count,
            step_count=step_count,
            is_steady=is_steady,
            trace=trace,
            notes=(*_describe_faults(tracker), *_describe_streams(simulation)),
        )


def _item(plan: Plan) -> Any:
    """Adafactor scales by norms that it reads; which values they have changes no byte."""
    if plan.item:
        return float(plan.item)
    return 1.0 if plan.optimizer == "adafactor" else "error"


def _on(device: str) -> contextlib.AbstractContextManager[Any]:
    """What the program makes without saying where."""
    return contextlib.nullcontext() if device == "cpu" else torch.device(device)


def _make_tracker(
    plan: Plan, model: nn.Module, optimizer: torch.optim.Optimizer, inputs: Any, recorder: Recorder
) -> MemTracker:
    tensors = tuple(leaf for leaf in tree_leaves(inputs) if isinstance(leaf, torch.Tensor))
    if plan.is_sharded:
        tracker = FSDPMemTracker(model, optimizer, record=recorder)
        tracker.track_inputs(tensors)
        return tracker
    plain = MemTracker(record=recorder)
    plain.track_external(model, optimizer, *tensors)
    return plain


def _train(
    contract: Contract,
    plan: Plan,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    inputs: Any,
    tracker: MemTracker,
    claim: Claim,
    progress: Progress,
) -> tuple[int, bool]:
    """How many steps it took, and whether the last began with the memory that it ended with."""
    before: object = None
    is_autocast = plan.compute_dtype is not None and not plan.is_sharded
    for step in range(1, _MOST_STEPS + 1):
        progress("the first step" if step == 1 else f"step {step}")
        autocast = torch.autocast(claim.device, plan.compute_dtype, enabled=is_autocast)
        with contract.telling("compute_loss"), autocast:
            loss = contract.compute_loss(model, inputs)
        _check_loss(contract, loss)
        with contract.telling("the backward"):
            loss.backward()  # type: ignore[no-untyped-call]
        del loss
        with contract.telling("the optimizer's step"):
            optimizer.step()
            optimizer.zero_grad()
        after = tracker._core.current()
        if after == before:
            return step, True
        before = after
    return _MOST_STEPS, False


def _check_loss(contract: Contract, loss: Any) -> None:
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or not loss.requires_grad:
        what = (
            f"a tensor of shape {tuple(loss.shape)}, requires_grad={loss.requires_grad}"
            if isinstance(loss, torch.Tensor)
            else f"a {type(loss).__name__}"
        )
        raise ContractError(
            f"compute_loss of {contract.name} returned {what}; a tensor of one element that "
            "depends on the parameters is expected"
        )


def _describe_faults(tracker: MemTracker) -> tuple[str, ...]:
    anomalies, first_anomaly = tracker._core.anomalies()
    failures, first_failure = tracker._core.failures()
    notes = []
    if anomalies:
        notes.append(f"{anomalies:,} events contradict others; the first: {first_anomaly}")
    if failures:
        notes.append(f"{failures:,} facts about FSDP2 are missing; the first: {first_failure}")
    return tuple(notes)


def _describe_streams(simulation: Simulation) -> tuple[str, ...]:
    """A trace does not say which memory another stream uses, so no replay can make it wait."""
    calls = sum(row.calls for row in simulation.coverage() if row.op == "aten::record_stream")
    if not calls:
        return ()
    return (
        f"record_stream was called {calls:,} times: frees that wait for another stream are taken "
        "not to wait, also at the upper end of the band.",
    )


def shard_sizes(model: nn.Module, shards: int) -> list[tuple[int, ...]]:
    """By position among the shards, the bytes of each parameter: FSDP2 cuts as torch.chunk does."""
    from torch.distributed.fsdp import FSDPModule

    rows: list[list[int]] = []
    for module in model.modules():
        if isinstance(module, FSDPModule):
            for group in module._get_fsdp_state()._fsdp_param_groups:
                for parameter in group.fsdp_params:
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


def _ranks_like(plan: Plan, model: nn.Module, rank: int) -> tuple[int, ...]:
    if not plan.is_sharded:
        return tuple(range(plan.world_size))
    sizes = shard_sizes(model, plan.shards)

    def position(each: int) -> int:
        return each // plan.tp % plan.shards

    own = sizes[position(rank)]
    return tuple(each for each in range(plan.world_size) if sizes[position(each)] == own)


def next_rank(world_size: int, done: Sequence[Run], wanted: str) -> int | None:
    """The next rank to simulate, None if all that was asked for is there.

    "worst" is among the first rank that is unlike rank 0 ... the last: shards get smaller with the
    rank, and gathered parameters are the same everywhere.
    """
    covered = {rank for run in done for rank in run.like_ranks}
    if wanted.isdecimal():
        return None if done else int(wanted)
    if not done:
        return 0
    if wanted == "worst":
        last = world_size - 1
        return None if last in covered else last
    return next((rank for rank in range(world_size) if rank not in covered), None)
