# SPDX-License-Identifier: BSD-3-Clause
"""Estimates are those that benchmarks/oracle.json compares with torch's own CUDA allocator.

`tools/update_oracle.py` measures again; it needs a torch with CUDA, but no GPU.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

REPO = Path(__file__).parents[3]
sys.path.insert(0, str(REPO / "tests" / "standin"))
from oracle_cases import CASES, Case  # noqa: E402
from oracle_estimate import estimate_case  # noqa: E402

RESULTS = json.loads((REPO / "benchmarks" / "oracle.json").read_text())
QUICK = ("llama fp32", "llama fsdp 8", "vit autocast", "moe full ac", "llama tp 2")


def test_every_configuration_was_compared() -> None:
    assert list(RESULTS["cases"]) == [case.name for case in CASES]
    assert len(CASES) >= 40


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name, marks=[] if case.name in QUICK else [pytest.mark.long])
        for case in CASES
    ],
)
def test_estimate_is_the_one_that_was_compared(case: Case) -> None:
    if RESULTS["torch"].partition("+")[0] != torch.__version__.partition("+")[0]:
        pytest.skip(f"benchmarks/oracle.json is of torch {RESULTS['torch']}")
    assert estimate_case(case) == RESULTS["cases"][case.name]["ours"]
