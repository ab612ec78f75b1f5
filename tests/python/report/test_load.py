# SPDX-License-Identifier: BSD-3-Clause
"""Many ranks, and long runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tidegauge import MemTracker, Recorder
from tidegauge.cli.main import main
from torch import nn

RECORD_STEPS = Path(__file__).parents[3] / "build" / "release" / "record_steps"
RANKS = range(64)
PARAMETERS = (8 * 8 + 8) * 4


def activations(rank: int) -> int:
    """The input and the output: 1 + rank rows of 8 floats each."""
    return 2 * (1 + rank) * 8 * 4


def test_64_ranks_are_merged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = nn.Linear(8, 8)
    for rank in RANKS:
        recorder = Recorder(
            tmp_path / f"run.rank{rank}.tide", facts={"rank": str(rank), "world_size": "64"}
        )
        with MemTracker(record=recorder), torch.no_grad():
            model(torch.ones(1 + rank, 8))
        recorder.close()
    monkeypatch.chdir(tmp_path)
    paths = [f"run.rank{rank}.tide" for rank in reversed(RANKS)]
    assert main(["merge", *paths, "--json"]) == 0
    merged = json.loads(capsys.readouterr().out)
    assert merged["world_size"] == 64
    assert merged["missing_ranks"] == []
    (device,) = merged["devices"]
    assert [
        (each["rank"], each["path"], each["total_bytes"], each["categories"])
        for each in device["ranks"]
    ] == [
        (
            rank,
            f"run.rank{rank}.tide",
            PARAMETERS + activations(rank),
            {"Parameter": PARAMETERS, "Activation": activations(rank)},
        )
        for rank in RANKS
    ]
    mean = (activations(0) + activations(63)) // 2  # they grow by the same bytes from rank to rank
    rows = {
        "total": (PARAMETERS + activations(0), PARAMETERS + mean, PARAMETERS + activations(63), 63),
        "Parameter": (PARAMETERS, PARAMETERS, PARAMETERS, 0),
        "Activation": (activations(0), mean, activations(63), 63),
    }
    for spread in (device["total"], *device["categories"]):
        least, mean, most, worst = rows.pop(spread["name"])
        assert spread == {
            "name": spread["name"],
            "least_bytes": least,
            "mean_bytes": mean,
            "most_bytes": most,
            "worst_rank": worst,
            "imbalance": round(most / mean - 1, 6),
        }
    assert rows == {}


def test_merge_of_64_ranks_lists_each_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for rank in RANKS:
        recorder = Recorder(
            tmp_path / f"run.rank{rank}.tide", facts={"rank": str(rank), "world_size": "64"}
        )
        with MemTracker(record=recorder):
            torch.empty(256 * (1 + rank))  # rank + 1 KiB
        recorder.close()
    monkeypatch.chdir(tmp_path)
    paths = [f"run.rank{rank}.tide" for rank in RANKS]
    assert main(["merge", *paths]) == 0
    output = capsys.readouterr().out
    assert output.startswith(
        "Highest peak on cpu: 64.0 KiB on rank 63, 96.9% above the mean of 32.5 KiB\n"
    )
    listed = [line.split()[:4] for line in output.splitlines() if " cpu  " in line]
    assert listed == [
        [str(rank), "cpu", f"{rank + 1}.00" if rank < 9 else f"{rank + 1}.0", "KiB"]
        for rank in RANKS
    ]
    assert main(["report", *paths, "--html", "page.html"]) == 0


MEASURE = """
import re, sys
from tidegauge.cli.main import main
code = main(sys.argv[1:])
print("peak", re.search(r"VmHWM:\\s*(\\d+) kB", open("/proc/self/status").read())[1])
sys.exit(code)
"""


def measure_report(path: Path, *options: str) -> int:
    """The most memory that a report takes, in bytes."""
    command = [sys.executable, "-c", MEASURE, "report", str(path), "-q", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(done.stdout.split()[-1]) * 1024


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_memory_of_a_report_is_bounded(tmp_path: Path) -> None:
    if not RECORD_STEPS.exists():
        assert os.environ.get("CI") != "true"
        pytest.skip("found no build/release/record_steps; run: make test")
    path = tmp_path / "run.tide"
    subprocess.run([RECORD_STEPS, path, "10000000"], check=True)
    assert measure_report(path) < 100 * 2**20
    assert measure_report(path, "--html", str(tmp_path / "page.html")) < 512 * 2**20
