# SPDX-License-Identifier: BSD-3-Clause
"""What `estimate` says about a configuration of the oracle (tests/standin/oracle_cases.py)."""

from __future__ import annotations

from typing import Any

from tidegauge import estimate


def estimate_case(case: Any) -> dict[str, int]:
    task = case.task
    found = estimate(
        task["target"],
        device="h100-80g",
        rank=0,
        settings=task["settings"],
        alloc_conf=task["alloc_conf"],
        **task["plan"],
    )
    sizes = {layer.name: layer.size_bytes for layer in found.layers}
    return {
        "first": found.first_step_bytes,
        "tensors": found.steady_step_bytes,
        "active": sizes["active"],
        "reserved": sizes["reserved"],
    }
