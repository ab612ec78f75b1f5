# SPDX-License-Identifier: BSD-3-Clause
"""`estimate` keeps events in memory; it writes a trace file only if the user asks for one."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tidegauge import _C
from tidegauge.cli.main import main
from tidegauge.estimation import Estimator, load_contract
from tidegauge.estimation.plan import Plan
from tidegauge.report import read_summary

Capture = pytest.CaptureFixture[str]


def files_below(folder: Path) -> list[str]:
    return [name for _, _, names in os.walk(folder) for name in names]


@pytest.mark.parametrize("plan", [Plan(), Plan(fsdp=2)], ids=["plain", "sharded"])
def test_trace_file_is_written_only_on_request(
    model_file: str, plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.delattr(_C, "Recorder")
    with Estimator(load_contract(model_file), folder=str(folder)) as estimator:
        found = estimator.estimate(plan)
        assert files_below(folder) == []
        trace = estimator.trace_of(found)
        assert len(files_below(folder)) == 1
        peaks = read_summary(trace).peaks
    assert files_below(folder) == []
    peak = next(peak for peak in peaks if peak.device.startswith("cuda"))
    assert peak.categories == found.peak.categories
    assert peak.modules == found.peak.modules
    assert peak.units == found.peak.units


def test_requested_trace_has_the_figures_of_the_estimate(model_file: str, capsys: Capture) -> None:
    assert main(["estimate", model_file, "--fsdp", "2", "--json", "--trace", "run.tide"]) == 0
    found = json.loads(capsys.readouterr().out)
    summary = read_summary("run.tide")
    peak = next(peak for peak in summary.peaks if peak.device == "cuda:0")
    assert summary.health.is_good
    assert summary.facts["simulated"] == "cuda"
    assert summary.world_size == 2
    assert peak.total_bytes == found["peak"]["total_bytes"]
    assert peak.categories == found["peak"]["categories"]
    assert [unit.size_bytes for unit in peak.units][: len(found["peak"]["units"])] == [
        unit["size_bytes"] for unit in found["peak"]["units"]
    ]
