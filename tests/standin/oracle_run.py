# SPDX-License-Identifier: BSD-3-Clause
"""`oracle_run.py CASE [FILE]`: trains a target of `estimate` on torch's real CUDA build, over the
stand-in, and prints what torch's allocator says, as JSON. The steps are those of an estimate. The
file gets all requests (oracle_requests.py). `steps`, a member of the case: how many.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path
from typing import Any

import oracle_requests
import torch
import torch.distributed as dist
import torch.distributed.pipelining  # otherwise a tensor that it makes is on the device
from tidegauge._torch.absent_ranks import FOR_ABSENT_RANKS
from tidegauge.estimation import Plan, load_contract
from tidegauge.estimation.contract import Contract
from tidegauge.estimation.pipeline import prepare_pipeline
from tidegauge.estimation.preparation import make_optimizer, prepare_model, replicate
from tidegauge.estimation.steps import run_step


def read(which: str) -> dict[str, int]:
    found = torch.cuda.memory_stats()
    names = ("requested", "allocated", "active", "reserved")
    figures = {name: found[f"{name}_bytes.all.{which}"] for name in names}
    return {**figures, "segments": found["segment.all.current"]}


def measure(case: dict[str, Any], requests: Path | None) -> dict[str, Any]:
    plan = Plan(**case["plan"], settings=tuple(sorted(case["settings"].items())))
    contract = load_contract(case["target"])
    settings = contract.resolve(dict(plan.settings))
    torch.cuda.set_device(0)
    if plan.is_sharded or plan.world_size > 1:
        FOR_ABSENT_RANKS.install(FOR_ABSENT_RANKS)
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29500")
        dist.init_process_group("nccl", rank=0, world_size=plan.world_size)
    called, model, inputs = prepare(contract, plan, settings)
    if requests:
        oracle_requests.start()
    # Only the finished parameters are on the device, one after another.
    for module in model.modules():
        module.to_empty(device="cuda", recurse=False)
    optimizer = make_optimizer(contract, plan, model, "cuda")
    if called is model:
        with torch.device("cuda"):
            inputs = contract.make_inputs(settings)
        called = replicate(plan, model)
    if case["is_compiled"]:
        called = torch.compile(called)
    figures: dict[str, Any] = {}

    def read_init(module: torch.nn.Module, args: Any) -> None:
        """When the model is first called, as in a trace."""
        figures.setdefault("init", read("current"))

    for root in called.model.stages if plan.pp > 1 else [called]:
        root.register_forward_pre_hook(read_init, prepend=True)
    for step in range(case["steps"]):
        torch.cuda.reset_peak_memory_stats()
        run_step(contract, plan, called, optimizer, inputs, "cuda")
        figures["first" if step == 0 else "steady"] = read("peak")
    if requests:
        requests.write_text(json.dumps(oracle_requests.read()))
    return figures


def prepare(contract: Contract, plan: Plan, settings: Any) -> tuple[Any, torch.nn.Module, Any]:
    """What a step calls, its parameters, which are not on the device yet, and of a pipeline the
    inputs."""
    if plan.pp == 1:
        with torch.device("meta"):
            model = contract.build_model(settings)
        prepare_model(contract, plan, model, "cuda")
        return model, model, None
    with torch.device("cuda"):
        model = contract.build_model(settings)
        inputs = contract.make_inputs(settings)
        pipeline = prepare_pipeline(contract, plan, model, inputs, "cuda")
    pipeline.model.to("cpu")
    del model
    gc.collect()
    torch.cuda.empty_cache()
    return pipeline, pipeline.model, pipeline.inputs


if __name__ == "__main__":
    wanted = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    print(json.dumps(measure(json.loads(sys.argv[1]), wanted)), flush=True)
    os._exit(0)  # torch's autograd threads may abort a process that ends after a backward
