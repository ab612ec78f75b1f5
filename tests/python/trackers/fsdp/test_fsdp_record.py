# SPDX-License-Identifier: BSD-3-Clause
"""The replay of a sharded run's trace equals the tracker."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from fsdp_cases import CASES
from sharded import WIDTH, Net, world
from tidegauge import FSDPMemTracker, Recorder, _core

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("allocator", [False, True])
def test_replay_has_the_figures_of_the_run(name: str, allocator: bool, tmp_path: Path) -> None:
    make, train = CASES[name]
    recorder = Recorder(tmp_path / "run.tide")
    with world(4):
        model, x = make(), torch.randn(8, WIDTH)
        optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
        tracker = FSDPMemTracker(model, optimizer, allocator=allocator, record=recorder)
        with tracker:
            for step in range(2):
                train(model, x, step)
                optimizer.step()
                optimizer.zero_grad()
            peak = {str(device): split for device, split in tracker._native.splits(True).items()}
            units = tracker.units()
    recorder.close()
    reader = _core.Reader(str(tmp_path / "run.tide"))
    recorded = {unit["name"]: unit for unit in _core.ReadRun(reader).units()}
    assert recorded.keys() == {unit["name"] for unit in units}
    for unit in units:
        at_peak = {str(device): split for device, split in unit["at_peak"].items()}
        assert recorded[unit["name"]]["at_peak"] == at_peak
        assert recorded[unit["name"]]["gather_count"] == len(unit["gatherings"])
        assert recorded[unit["name"]]["reduce_count"] == unit["reduce_count"]
        times = [(each["complete_ns"], each["released_ns"]) for each in unit["gatherings"]]
        if all(None not in pair for pair in times):
            longest = max((released - complete for complete, released in times), default=0)
            assert recorded[unit["name"]]["longest_whole_ns"] == longest
    ledger = reader.replay()
    assert {device: split for device, _, _, _, split in ledger.fine_peak()} == peak
    assert "Sharded Param" in peak["cpu"]
    assert ledger.anomalies() == tracker._native.anomalies() == (0, "")


def test_refused_root_makes_no_file(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        FSDPMemTracker(Net(), record=tmp_path / "run.tide")
    assert not (tmp_path / "run.tide").exists()
