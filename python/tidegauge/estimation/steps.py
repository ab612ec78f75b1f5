# SPDX-License-Identifier: BSD-3-Clause
"""Training steps of a plan, until they repeat."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.parallel import DistributedDataParallel

from tidegauge.estimation.contract import Contract, ContractError
from tidegauge.estimation.pipeline import Pipeline
from tidegauge.estimation.plan import Plan
from tidegauge.estimation.preparation import autocast, group_by_mesh, make_sequence_mesh
from tidegauge.estimation.step_record import StepRecorder
from tidegauge.trackers.mem_tracker import MemTracker

_MOST_STEPS = 6


@dataclass(frozen=True)
class Trained:
    """`is_steady`: the last step began and ended with the same memory. `init_bytes`: on the device
    before the first step. `event_counts`: before the first step, and after each one.
    """

    step_count: int
    is_steady: bool
    init_bytes: int
    event_counts: tuple[int, ...]


_BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "math": SDPBackend.MATH,
}
Progress = Callable[[str], None]


def train(
    contract: Contract,
    plan: Plan,
    model: nn.Module | Pipeline,
    optimizer: torch.optim.Optimizer,
    inputs: Any,
    tracker: MemTracker,
    device: str,
    progress: Progress,
    steps: StepRecorder,
    count_events: Callable[[], int],
) -> Trained:
    before: object = None
    init_bytes = sum(
        sum(split) for place, split in tracker._native.current() if place.type == device
    )
    counts = [count_events()]
    is_steady = False
    sequence_mesh = make_sequence_mesh(plan, device) if plan.cp > 1 else None
    for step in range(1, _MOST_STEPS + 1):
        progress("the first step" if step == 1 else f"step {step}")
        steps.begin_step()
        run_step(contract, plan, model, optimizer, inputs, device, sequence_mesh)
        after = tracker._native.current()
        counts.append(count_events())
        is_steady = after == before
        if is_steady:
            break
        before = after
    return Trained(len(counts) - 1, is_steady, init_bytes, tuple(counts))


def run_step(
    contract: Contract,
    plan: Plan,
    model: nn.Module | Pipeline,
    optimizer: torch.optim.Optimizer,
    inputs: Any,
    device: str,
    sequence_mesh: Any = None,
) -> None:
    """`sequence_mesh`: the ranks that share sequences."""
    for batch in range(plan.accumulate):
        is_last = batch == plan.accumulate - 1
        with _reduce(model, is_last), _choose_attention(plan):
            if isinstance(model, Pipeline):
                with contract.wrap_errors("the pipeline"):
                    model.step()
            else:
                with _split_sequence(contract, model, inputs, sequence_mesh):
                    _run_batch(contract, plan, model, inputs, device)
    with contract.wrap_errors("optimizer step"):
        if plan.clip:
            clip_gradients(plan, model, device)
        optimizer.step()
        optimizer.zero_grad()


def clip_gradients(plan: Plan, model: nn.Module | Pipeline, device: str) -> None:
    options: dict[str, Any] = {}
    if plan.tp > 1 and not plan.is_sharded:
        options["foreach"] = False  # foreach ops cannot mix DTensors and plain tensors
    elif device == "cpu":
        options["foreach"] = True  # torch's own choice on a GPU
    module = model.model if isinstance(model, Pipeline) else model
    groups = group_by_mesh(module.parameters()) if plan.ep > 1 else []
    if len(groups) < 2:
        nn.utils.clip_grad_norm_(module.parameters(), plan.clip, **options)
        return
    norms = []
    for group in groups:
        gradients = [each.grad for each in group if each.grad is not None]
        norm: Any = nn.utils.get_total_norm(gradients, **options)
        norms.append(norm.full_tensor())
    total = torch.linalg.vector_norm(torch.stack(norms))
    for group in groups:
        nn.utils.clip_grads_with_norm_(group, plan.clip, total, **options)


def _run_batch(contract: Contract, plan: Plan, model: nn.Module, inputs: Any, device: str) -> None:
    with contract.wrap_errors("compute_loss"), autocast(plan, device):
        loss = contract.compute_loss(model, inputs)
    _check_loss(contract, loss)
    if plan.accumulate > 1:
        loss = loss / plan.accumulate
    with contract.wrap_errors("backward"):
        loss.backward()  # type: ignore[no-untyped-call]


def _split_sequence(
    contract: Contract, model: nn.Module, inputs: Any, mesh: Any
) -> contextlib.AbstractContextManager[Any]:
    """The context in which each rank of the mesh has its part of the sequence."""
    if mesh is None:
        return contextlib.nullcontext()
    from torch.distributed.tensor.experimental import context_parallel

    if contract.split_sequence is None:
        raise ContractError(
            f"cp requires a function split_sequence(model, inputs) in {contract.name} that returns "
            "the tensors to split, each with its dimension of the sequence, e.g. [(tokens, 1)]"
        )
    with contract.wrap_errors("split_sequence"):
        parts = contract.split_sequence(model, inputs)
    for tensor, dim in parts:
        if tensor.shape[dim] % (2 * mesh.size()):
            raise ValueError(
                f"cp={mesh.size()} cannot split a sequence of {tensor.shape[dim]} (expected a "
                f"multiple of {2 * mesh.size()}: each rank has a part of its beginning and one of "
                "its end)"
            )
    return context_parallel(
        mesh,
        buffers=[tensor for tensor, _ in parts],
        buffer_seq_dims=[dim for _, dim in parts],
    )


def _reduce(model: object, is_last: bool) -> contextlib.AbstractContextManager[Any]:
    """DDP reduces the gradients only after the last batch of a step; FSDP2 after each one."""
    if isinstance(model, DistributedDataParallel) and not is_last:
        return model.no_sync()
    return contextlib.nullcontext()


def _choose_attention(plan: Plan) -> contextlib.AbstractContextManager[Any]:
    if not plan.attention:
        return contextlib.nullcontext()
    return sdpa_kernel(_BACKENDS[plan.attention])


def _check_loss(contract: Contract, loss: Any) -> None:
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or not loss.requires_grad:
        what = (
            f"a tensor of shape {tuple(loss.shape)}, requires_grad={loss.requires_grad}"
            if isinstance(loss, torch.Tensor)
            else f"a {type(loss).__name__}"
        )
        raise ContractError(
            f"compute_loss of {contract.name} returned {what} (expected a tensor with one element "
            "that depends on the parameters)"
        )
