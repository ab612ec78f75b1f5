# SPDX-License-Identifier: BSD-3-Clause
"""What `estimate` says about a configuration of the oracle (tests/standin/oracle_cases.py)."""

from __future__ import annotations

from typing import Any

from tidegauge.allocator import StepFigures, find_device
from tidegauge.estimation import Estimator, Plan, load_contract


def estimate_case(case: Any) -> tuple[dict[str, dict[str, int]], int]:
    """The figures of torch.cuda.memory_stats, by moment, as oracle_run.py measures them, and the
    number of steps."""
    task = case.task
    plan = Plan(**task["plan"], settings=tuple(sorted(task["settings"].items())))
    with Estimator(load_contract(task["target"]), rank="0") as estimator:
        estimate = estimator.estimate(plan, find_device("h100-80g"), task["alloc_conf"])
        before, first, *others = estimator.memory_of_steps(estimate)
    moments = {"init": before, "first": first, "steady": others[-1]}
    return {moment: to_row(figures) for moment, figures in moments.items()}, 1 + len(others)


def to_row(figures: StepFigures) -> dict[str, int]:
    return {name.removesuffix("_bytes"): size for name, size in vars(figures).items()}
