# SPDX-License-Identifier: BSD-3-Clause
"""Options of FSDP2: bytes equal the allocator's, real and fake runs agree, runs are unchanged."""

from __future__ import annotations

import pytest
import torch
from differences import is_fixed_upstream
from fsdp_cases import CASES
from fsdp_runs import ALL, OTHER_WORLDS, RUNS, figures
from sharded import has_equal_parameters, run, world
from tidegauge import FSDPMemTracker
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker as UpstreamTracker

pytestmark = pytest.mark.filterwarnings("ignore")

# torch makes a mesh inside, with or without a tracker.
FAKE_MODE_FAILS = {"resharded_to_2", "tensor_parallel", "tensor_parallel_in_half"}


@pytest.mark.parametrize(("name", "size"), [*RUNS, *OTHER_WORLDS])
def test_totals_equal_the_allocator(name: str, size: int) -> None:
    mine = figures(name, size, "real")
    assert [mark["Total"] for mark in mine.marks] == mine.allocated
    if name == "unused_but_reduced":
        # The peak includes new zeros that are freed before any operator ends.
        assert mine.allocated_peak <= mine.peak["Total"] <= mine.allocated_peak_of_all
    else:
        assert mine.peak["Total"] == mine.allocated_peak


@pytest.mark.parametrize(
    ("name", "size"), [*(r for r in RUNS if r[0] not in FAKE_MODE_FAILS), *OTHER_WORLDS]
)
def test_fake_run_has_the_figures_of_the_real_one(name: str, size: int) -> None:
    real, fake = figures(name, size, "real"), figures(name, size, "fake")
    assert fake.propagations.on_fakes > 0  # they are not counted as memory
    assert fake.marks == real.marks
    assert fake.peak == real.peak


def test_fake_run_with_a_foreach_optimizer_has_the_figures_of_the_real_one() -> None:
    """The peak is in the step, where DTensor computes shardings on lists of whole parameters."""
    with world(8):
        real, fake = (
            run(CASES["plain"], FSDPMemTracker, steps=1, is_fake=is_fake, foreach=True)
            for is_fake in (False, True)
        )
    assert fake.propagations.on_fakes > 0
    assert real.peak["Total"] == real.allocated_peak
    assert fake.marks == real.marks
    assert fake.peak == real.peak


@pytest.mark.parametrize(("name", "size"), [*RUNS, *OTHER_WORLDS])
def test_run_is_the_same_as_without_a_tracker(name: str, size: int) -> None:
    tracked, untracked = figures(name, size, "real"), figures(name, size, "untracked")
    assert len(tracked.parameters) == len(untracked.parameters) > 0
    assert has_equal_parameters(tracked, untracked)
    grown = [bytes_now - tracked.allocated[0] for bytes_now in tracked.allocated]
    assert grown == [bytes_now - untracked.allocated[0] for bytes_now in untracked.allocated]
    assert tracked.allocated_peak - tracked.allocated[0] == (
        untracked.allocated_peak - untracked.allocated[0]
    )


UPSTREAM_DIFFERS = {
    # Upstream refuses a second call of the root, and a second group of a module.
    *("hsdp_late_all_reduce", "accumulation", "accumulation_in_float", "evaluation", "inference"),
    "two_groups",
    # Upstream does not see the random states that these keep, nor earlier parameters.
    *("checkpoint", "checkpoint_wrapper", "checkpoint_function", "checkpoint_selective"),
    *("checkpoint_reentrant", "ignored"),
}


def test_sharding_propagation_of_dtensor_is_not_memory() -> None:
    with world(8):
        runs = (
            run(ALL["half_reduction"], make, steps=1) for make in (FSDPMemTracker, UpstreamTracker)
        )
        mine, theirs = (each.peak["Total"] for each in runs)
    assert mine == 93_158
    assert theirs == (93_158 if is_fixed_upstream(since=(2, 13)) else 104_788)


@pytest.mark.parametrize("name", [name for name in ALL if name not in UPSTREAM_DIFFERS])
def test_totals_equal_upstream(name: str) -> None:
    """Older versions of upstream count the tensors on which DTensor computes shardings, so there
    all shardings are known before."""
    forgets = is_fixed_upstream(since=(2, 13))
    with world(8):
        if not forgets:
            run(ALL[name], None, steps=1)
        mine, theirs = (
            run(ALL[name], make, steps=1, forgets=forgets)
            for make in (FSDPMemTracker, UpstreamTracker)
        )
    assert forgets or mine.propagations.on_fakes == 0
    assert [mark["Total"] for mark in mine.marks] == [mark["Total"] for mark in theirs.marks]
    assert mine.peak["Total"] == theirs.peak["Total"]


@pytest.mark.parametrize(("name", "size"), RUNS)
def test_bytes_of_units_equal_those_of_the_tracker(name: str, size: int) -> None:
    """FSDP2's tensors belong to a unit; whole parameters and gradients may belong to none."""
    mine = figures(name, size, "real")
    categories = ["Sharded Param", "Unsharded Param", "All Gather", "Reduce Scatter"]
    if name == "ignored":
        categories.remove("Unsharded Param")
    finer = {"Post-Forward Shard": "Sharded Param", "All Reduce": "Reduce Scatter"}
    sums: dict[str, int] = {}
    for unit in mine.units:
        for category, size_bytes in unit["at_peak"].get(torch.device("cpu"), {}).items():
            category = finer.get(category, category)
            sums[category] = sums.get(category, 0) + size_bytes
    assert {c: sums.get(c, 0) for c in categories} == {c: mine.peak.get(c, 0) for c in categories}
