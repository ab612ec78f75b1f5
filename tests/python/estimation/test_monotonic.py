# SPDX-License-Identifier: BSD-3-Clause
"""Estimates are monotonic in ranks, checkpointing and batch size."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from tidegauge.estimation import Estimate, Estimator, Plan, load_contract

STATE = ("Sharded Param", "Sharded Grad", "Optstate", "Parameter", "Gradient")


@pytest.fixture
def estimator(model_file: str) -> Iterator[Estimator]:
    with Estimator(load_contract(model_file)) as estimator:
        yield estimator


def state_bytes(found: Estimate) -> int:
    return sum(found.peak.categories.get(name, 0) for name in STATE)


def test_more_ranks_never_need_more_state_bytes(estimator: Estimator) -> None:
    sizes = [state_bytes(estimator.estimate(Plan(fsdp=ranks))) for ranks in (1, 2, 3, 4, 8, 16)]
    assert all(more >= less for more, less in itertools.pairwise(sizes)), sizes


def test_full_checkpointing_never_keeps_more_activations(estimator: Estimator) -> None:
    """Selective checkpointing may keep more: it keeps outputs that a plain run frees, for example
    those of a linear layer before a ReLU."""
    for plan in (Plan(), Plan(fsdp=4), Plan(fsdp=4, mp="bf16/fp32")):
        kept = [
            estimator.estimate(plan.change(ac=ac).change_setting("batch", 64)).peak.saved_bytes
            for ac in ("none", "full")
        ]
        assert kept[0] > kept[1], kept


def test_larger_batch_never_lowers_the_peak(estimator: Estimator) -> None:
    for plan in (Plan(), Plan(fsdp=2, ac="full")):
        peaks = [
            estimator.estimate(plan.change_setting("batch", batch)).peak.total_bytes
            for batch in (1, 2, 4, 8, 16, 32)
        ]
        assert all(less <= more for less, more in itertools.pairwise(peaks)), peaks


def test_equal_plan_is_not_run_again(estimator: Estimator) -> None:
    estimator.estimate(Plan(fsdp=2))
    count = estimator.run_count
    again = estimator.estimate(Plan(fsdp=2), alloc_conf="expandable_segments:True")
    assert estimator.run_count == count
    assert again.alloc_conf == "expandable_segments:True"
