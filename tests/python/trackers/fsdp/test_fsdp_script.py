# SPDX-License-Identifier: BSD-3-Clause
"""The tracker of `tidegauge run`, which gets no model, has the figures of an FSDPMemTracker."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fsdp_cases import CASES
from sharded import WIDTH, world
from tidegauge import FSDPMemTracker
from tidegauge.trackers.script_tracker import ScriptTracker

pytestmark = pytest.mark.filterwarnings("ignore")


def by_name(units: list[dict[str, Any]]) -> dict[str, Any]:
    """The fields that do not depend on when the tracker was entered."""
    kept = ("state", "now", "reduce_count")
    return {unit["name"]: {key: unit[key] for key in kept} for unit in units}


@pytest.mark.parametrize("name", CASES)
def test_script_that_shards_has_the_same_units(name: str) -> None:
    make, train = CASES[name]
    with world(4), ScriptTracker() as found:
        model, x = make(), torch.randn(8, WIDTH)
        optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
        with FSDPMemTracker(model, optimizer) as given:  # type: ignore[arg-type]
            for step in range(2):
                loss = train(model, x, step)
                assert by_name(found._native.units()) == by_name(given.units())
                optimizer.step()
                optimizer.zero_grad()
                del loss
            assert by_name(found._native.units()) == by_name(given.units())
            of_units = {"Sharded Param", "Unsharded Param", "Sharded Grad", "Unsharded Grad"}
            splits = [tracker._native.splits(False) for tracker in (found, given)]
            for device in given._native.splits(False):
                seen, expected = ({k: s[device].get(k) for k in of_units} for s in splits)
                assert seen == expected
        assert found._native.anomalies() == (0, "")
        assert found._native.failures() == (0, "")


def test_script_without_sharding_has_the_figures_of_a_mem_tracker() -> None:
    from tidegauge import MemTracker

    with ScriptTracker() as found, MemTracker() as given:
        model = torch.nn.Linear(4, 8)
        optimizer = torch.optim.SGD(model.parameters(), momentum=0.9)
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        assert found._native.units() == []
        for at_peak in (False, True):
            assert found._native.splits(at_peak) == given._native.splits(at_peak)
