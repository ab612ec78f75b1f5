# SPDX-License-Identifier: BSD-3-Clause
"""Trains the small model under a tracker with real tensors, as a user would.

As a program, `real_run.py TASK RANK`: runs one rank of some plans on gloo. The task names the
target and the number of ranks.
"""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from one_thread_gloo import init_one_thread_gloo, settle
from tidegauge import FSDPMemTracker, MemTracker
from tidegauge.estimation import Contract, Plan, load_contract
from tidegauge.estimation.pipeline import prepare_pipeline
from tidegauge.estimation.preparation import group_by_mesh, prepare_model
from tidegauge.estimation.steps import clip_gradients
from tidegauge.report import read_summary
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

OPTIMIZERS = {
    "": torch.optim.AdamW,
    "sgd-momentum": lambda *args, **kwargs: torch.optim.SGD(*args, momentum=0.9, **kwargs),
}


def settle_around_units(model: Any) -> None:
    """Settles gloo before the forward and backward of each unit, and after its forward.

    Uses a hook on the output, because a backward hook on the module would add autograd nodes.
    """

    def settle_in_backward(module: torch.nn.Module, args: Any, output: torch.Tensor) -> None:
        settle()
        output.register_hook(lambda gradient: settle())

    for module in (*model.blocks, model.head):
        module.register_forward_pre_hook(lambda module, args: settle())
        module.register_forward_hook(settle_in_backward)


def train(
    contract: Contract, plan: Plan, trace: Path, settings: dict[str, Any] | None = None
) -> dict[str, Any]:
    chosen = contract.resolve(settings or {})
    model = contract.build_model(chosen)
    if plan.pp > 1:
        return train_pipeline(contract, plan, trace, model, contract.make_inputs(chosen))
    prepare_model(contract, plan, model, "cpu")
    if (
        plan.is_sharded or plan.dp or plan.tp > 1
    ):  # DDP sends the sizes of its rebuilt buckets in forward
        settle_around_units(model)
    called: torch.nn.Module = DistributedDataParallel(model) if plan.dp else model
    if contract.make_optimizer is not None:
        optimizer = contract.make_optimizer(model)
    elif plan.zero:
        optimizer = ZeroRedundancyOptimizer(
            model.parameters(), torch.optim.AdamW, lr=1e-3, foreach=True
        )
    else:  # for the DTensors themselves, unlike in an estimate
        parameters: Any = [*model.parameters()]
        if plan.ep > 1:
            parameters = [{"params": each} for each in group_by_mesh(parameters)]
        has_lists = plan.is_sharded or plan.tp == 1  # of plain tensors alone, or of DTensors
        optimizer = OPTIMIZERS[plan.optimizer](parameters, lr=1e-3, foreach=has_lists)
    inputs = contract.make_inputs(chosen)
    if plan.is_sharded:
        tracker: MemTracker = FSDPMemTracker(model, optimizer, record=trace)
        tracker.track_inputs((inputs,))  # type: ignore[attr-defined]
    else:
        tracker = MemTracker(record=trace)
        tracker.track_external(model, optimizer, inputs)
    is_autocast = bool(plan.mp) and not plan.is_sharded
    with tracker:
        for _ in range(3):
            for batch in range(plan.accumulate):
                with ExitStack() as stack:
                    if plan.dp and batch < plan.accumulate - 1:
                        stack.enter_context(called.no_sync())
                    with torch.autocast("cpu", plan.compute_dtype, enabled=is_autocast):
                        loss = contract.compute_loss(called, inputs)
                    if plan.accumulate > 1:
                        loss = loss / plan.accumulate
                    loss.backward()
                    del loss
            if plan.clip:
                clip_gradients(plan, model, "cpu")
            optimizer.step()
            optimizer.zero_grad()
    return read_peak(trace)


def train_pipeline(
    contract: Contract, plan: Plan, trace: Path, model: torch.nn.Module, inputs: torch.Tensor
) -> dict[str, Any]:
    pipeline = prepare_pipeline(contract, plan, model, inputs, "cpu")
    optimizer = torch.optim.AdamW(pipeline.model.parameters(), lr=1e-3, foreach=True)
    settle()
    tracker = MemTracker(record=trace)
    tracker.track_external(pipeline.model, optimizer)
    tracker.track_external(inputs)  # the stages keep them
    if pipeline.inputs is not None:
        tracker.track_external(pipeline.inputs)
    with tracker:
        for _ in range(3):
            pipeline.step()
            optimizer.step()
            optimizer.zero_grad()
    return read_peak(trace)


def read_peak(trace: Path) -> dict[str, Any]:
    summary = read_summary(trace)
    peak = next(peak for peak in summary.peaks if peak.device == "cpu")
    steps = [step.total_bytes for step in summary.steps if step.device == "cpu"]
    return {
        "peak_bytes": peak.total_bytes,
        "categories": peak.categories,
        "first_step_bytes": steps[0],
    }


def main() -> None:
    task, rank = json.loads(sys.argv[1]), int(sys.argv[2])
    folder = Path(task["folder"])
    ranks = task["ranks"]
    init_one_thread_gloo(dist.FileStore(str(folder / "store"), ranks), rank, ranks)
    contract = load_contract(Path(__file__).parent / task["target"])
    found = []
    for number, run in enumerate(task["runs"]):
        trace = folder / f"run{number}.rank{rank}.tide"
        found.append(train(contract, Plan(**run["plan"]), trace, run["settings"]))
    (folder / f"rank{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
