# SPDX-License-Identifier: BSD-3-Clause
"""`tidegauge.plan.find`: what to checkpoint in a model that exists, or in any other target."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from tidegauge._util.formatting import parse_bytes
from tidegauge._util.suggestions import did_you_mean
from tidegauge.estimation.contract import Contract
from tidegauge.estimation.estimator import Estimator, check_rank, find_contract, find_model
from tidegauge.estimation.plan import OPTIONS, Plan
from tidegauge.planning.configurations import find_configuration, list_variants, parse_choices
from tidegauge.planning.planner import PlanResult


def find(
    target: str | os.PathLike[str] | Contract | nn.Module,
    *,
    device: str | None = None,
    device_memory: str | None = None,
    budget: int | str | None = None,
    inputs: Any = None,
    compute_loss: Callable[[nn.Module, Any], torch.Tensor] | None = None,
    config: str | None = None,
    settings: Mapping[str, Any] | None = None,
    choices: str = "ac",
    global_batch: int | None = None,
    speed: str = "",
    irregular: bool = False,
    alloc_conf: str | None = None,
    rank: int | str = "worst",
    assumptions: Mapping[str, int] | None = None,
    simulated_device: str = "cuda",
    **options: Any,
) -> PlanResult:
    """Chooses the checkpointing of each block, so that a run fits a device and is fastest::

        found = tidegauge.plan.find(model, inputs=torch.zeros(64, 3, 224, 224), device="l4")
        print(found.slowdown, found.chosen.estimate.high_bytes)
        found.applied.apply(model)  # before `fully_shard` and the first step

    `target`, `inputs`, `compute_loss`, `config`, `settings`, `rank`, `assumptions`,
    `simulated_device`, `alloc_conf` and the options of the training plan (`fsdp`, `mp`,
    `optimizer`, ...) are those of `tidegauge.estimate`, except `ac`, which is chosen. A model that
    is given is not changed, and its data is not copied.

    `budget`: bytes, or e.g. "60GiB"; by default all memory of the device. `choices`: what to
    choose, some of "ac,batch,reshard,wrap,offload"; `global_batch` goes with batch. `speed`: the
    device whose times are estimated, if it is not `device`. `irregular`: also plans whose equal
    blocks with equal choices do not stand side by side, if they are more than 1 % faster.

    Raises BudgetError if nothing fits.
    """
    known = [name for name in OPTIONS if name != "ac"]
    for name in options:
        if name not in known:
            raise TypeError(f"find() has no argument '{name}': {did_you_mean(name, known)}")
    model = find_model(device, device_memory)
    if model is None:
        raise ValueError("a plan needs a device, e.g. device='h100-80g'")
    contract = find_contract(target, config, inputs, compute_loss)
    plan = Plan(settings=tuple(sorted((settings or {}).items())), **options)
    plans = list_variants(contract, plan, parse_choices(choices), global_batch)
    with Estimator(
        contract,
        rank=check_rank(rank, plan),
        assumed=assumptions,
        simulated_device=simulated_device,
    ) as estimator:
        return find_configuration(
            estimator,
            plans,
            model,
            budget_bytes=_parse_budget(budget),
            alloc_conf=alloc_conf,
            speed=speed,
            irregular=irregular,
        ).best


def _parse_budget(budget: int | str | None) -> int | None:
    if budget is None:
        return None
    size_bytes = parse_bytes(budget) if isinstance(budget, str) else budget
    has_unit = not isinstance(budget, str) or not budget.strip()[-1:].isdigit()
    if not size_bytes or size_bytes < 1 or not has_unit:
        raise ValueError(f"invalid budget {budget!r} (expected bytes, or e.g. '60GiB')")
    return size_bytes
