# SPDX-License-Identifier: BSD-3-Clause
"""Options of FSDP2: bytes are the allocator's, real and fake runs agree, nothing is disturbed."""

from __future__ import annotations

import pytest
import torch
from fsdp_cases import CASES
from fsdp_runs import ALL, OTHER_WORLDS, RUNS, figures
from tidegauge import FSDPMemTracker
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker as UpstreamTracker

from sharded import run, world

pytestmark = pytest.mark.filterwarnings("ignore")

# torch makes a mesh within, with a tracker or without.
FAKE_MODE_FAILS = {"resharded_to_2", "tensor_parallel", "tensor_parallel_in_half"}


@pytest.mark.parametrize(("name", "size"), [*RUNS, *OTHER_WORLDS])
def test_totals_equal_the_allocator(name: str, size: int) -> None:
    mine = figures(name, size, "real")
    assert [mark["Total"] for mark in mine.marks] == mine.allocated
    if name == "unused_but_reduced":
        # At the peak there are zeros that were just made, and no operator ends before they go.
        assert mine.allocated_peak <= mine.peak["Total"] <= mine.allocated_peak_of_all
    else:
        assert mine.peak["Total"] == mine.allocated_peak


@pytest.mark.parametrize(
    ("name", "size"), [*(r for r in RUNS if r[0] not in FAKE_MODE_FAILS), *OTHER_WORLDS]
)
def test_fake_run_has_the_figures_of_the_real_one(name: str, size: int) -> None:
    real, fake = figures(name, size, "real"), figures(name, size, "fake")
    assert fake.propagations.on_fakes > 0  # which is no memory
    assert fake.marks == real.marks
    assert fake.peak == real.peak


def test_fake_run_with_an_optimizer_step_of_lists_has_the_figures_of_the_real_one() -> None:
    """The step is the peak, and DTensor works out its shardings on lists of whole parameters."""
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
    for mine, theirs in zip(tracked.parameters, untracked.parameters, strict=True):
        assert torch.equal(mine, theirs)
    grown = [bytes_now - tracked.allocated[0] for bytes_now in tracked.allocated]
    assert grown == [bytes_now - untracked.allocated[0] for bytes_now in untracked.allocated]
    assert tracked.allocated_peak - tracked.allocated[0] == (
        untracked.allocated_peak - untracked.allocated[0]
    )


UPSTREAM_DIFFERS = {
    # It refuses a second call of the root, and a second group of a module.
    *("hsdp_late_all_reduce", "accumulation", "accumulation_in_float", "evaluation", "inference"),
    "two_groups",
    # It does not see the states of the generator that these keep, nor parameters from before.
    *("checkpoint", "checkpoint_wrapper", "checkpoint_function", "checkpoint_selective"),
    *("checkpoint_reentrant", "ignored"),
}


@pytest.mark.parametrize("name", [name for name in ALL if name not in UPSTREAM_DIFFERS])
def test_totals_are_those_of_upstream(name: str) -> None:
    with world(8):
        mine, theirs = (run(ALL[name], make, steps=1) for make in (FSDPMemTracker, UpstreamTracker))
    assert [mark["Total"] for mark in mine.marks] == [mark["Total"] for mark in theirs.marks]
    assert mine.peak["Total"] == theirs.peak["Total"]


@pytest.mark.parametrize(("name", "size"), RUNS)
def test_units_have_what_the_tracker_has(name: str, size: int) -> None:
    """All that FSDP2 makes belongs to a unit; whole parameters and gradients may be nobody's."""
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
