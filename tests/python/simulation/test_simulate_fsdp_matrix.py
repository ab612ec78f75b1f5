# SPDX-License-Identifier: BSD-3-Clause
"""Simulated options of FSDP2: every figure of FSDPMemTracker equals that of the real run."""

from __future__ import annotations

import pytest
from fsdp_runs import ALL, OTHER_WORLDS, RUNS, figures
from sharded import run, world
from tidegauge import FSDPMemTracker, simulate

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize(("name", "size"), [*RUNS, *OTHER_WORLDS])
def test_figures_equal_those_of_the_real_run(name: str, size: int) -> None:
    real = figures(name, size, "real")
    with world(size), simulate():
        simulated = run(ALL[name], FSDPMemTracker)
    assert simulated.marks == real.marks
    assert simulated.peak == real.peak
    assert [unit["at_peak"] for unit in simulated.units] == [unit["at_peak"] for unit in real.units]
