# SPDX-License-Identifier: BSD-3-Clause
"""`oracle_run.py CASE [FILE]`: trains a target of `estimate` on torch's real CUDA build, over the
stand-in, and prints what torch's allocator says, as JSON. The steps are those of an estimate. The
file gets all requests of the steps (oracle_requests.py).
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import oracle_requests
import torch
import torch.distributed as dist
from tidegauge._torch.absent_ranks import FOR_ABSENT_RANKS
from tidegauge.estimation import Plan, load_contract
from tidegauge.estimation.preparation import make_optimizer, prepare_model

STEPS = 3


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
    # Only the finished parameters are put on the device, one after another.
    with torch.device("meta"):
        model = contract.build_model(settings)
    prepare_model(contract, plan, model, "cuda")
    if requests:
        oracle_requests.start()
    for module in model.modules():
        module.to_empty(device="cuda", recurse=False)
    optimizer = make_optimizer(contract, plan, model, "cuda")
    with torch.device("cuda"):
        inputs = contract.make_inputs(settings)
    figures: dict[str, Any] = {"init": read("current")}
    is_autocast = plan.compute_dtype is not None and not plan.is_sharded
    for step in range(case.get("steps", STEPS)):
        torch.cuda.reset_peak_memory_stats()
        with torch.autocast("cuda", plan.compute_dtype, enabled=is_autocast):
            loss = contract.compute_loss(model, inputs)
        loss.backward()
        del loss
        optimizer.step()
        optimizer.zero_grad()
        figures["first" if step == 0 else "steady"] = read("peak")
    if requests:
        requests.write_text(json.dumps(oracle_requests.read()))
    return figures


if __name__ == "__main__":
    wanted = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    print(json.dumps(measure(json.loads(sys.argv[1]), wanted)), flush=True)
    os._exit(0)  # torch's autograd threads may abort a process that ends after a backward
