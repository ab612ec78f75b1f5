# SPDX-License-Identifier: BSD-3-Clause
"""`tidegauge run --keep`: files of long runs stay small, and their peaks are right."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tidegauge import MemTracker, Recorder
from tidegauge._util.formatting import render_bytes
from tidegauge._util.keep import parse_keep
from tidegauge.cli.main import main
from tidegauge.report import read_summary
from tidegauge.report.text import describe_health

SCRIPT = Path(__file__).parent / "scripts" / "long_run.py"


def start(folder: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tidegauge", "run", *options, str(SCRIPT)],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_kept_file_has_the_peak_and_the_last_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = start(tmp_path, "--keep", "30steps", "-o", "kept.tide")
    out, err = kept.communicate(timeout=300)
    assert kept.returncode == 0, err
    summary = read_summary(tmp_path / "kept.tide")
    assert summary.health.is_good
    assert summary.step_count == int(out)
    dropped = summary.health.dropped_steps
    assert dropped >= 30
    assert describe_health(summary) == [
        f"{summary.health.dropped_events:,} events of {dropped:,} steps were dropped (--keep "
        "30steps); the peaks are those of the whole run."
    ]
    (peak,) = summary.peaks
    assert peak.step == 20
    assert f"peak on cpu: {render_bytes(peak.total_bytes)}" in err
    # Two outputs and the input of the large step, with its saved tensors.
    assert peak.total_bytes > 3 * 4096 * 16 * 4
    assert main(["report", str(tmp_path / "kept.tide")]) == 0
    assert "were dropped (--keep 30steps)" in " ".join(capsys.readouterr().out.split())
    assert not list(tmp_path.glob("kept.tide-*"))


def test_killed_run_with_keep_is_readable(tmp_path: Path) -> None:
    run = start(tmp_path, "--keep", "5steps", "-o", "kept.tide")
    path = tmp_path / "kept.tide"
    while not path.exists():
        time.sleep(0.05)
    time.sleep(1)
    run.kill()
    run.communicate(timeout=60)
    summary = read_summary(path)
    assert not summary.health.is_complete
    assert summary.health.anomaly_count == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", (90 * 10**9, 0)),
        ("10m", (600 * 10**9, 0)),
        ("2h", (7200 * 10**9, 0)),
        ("1d", (86400 * 10**9, 0)),
        ("500steps", (0, 500)),
        ("1 step", (0, 1)),
    ],
)
def test_times_and_steps_are_parsed(text: str, expected: tuple[int, int]) -> None:
    assert parse_keep(text) == expected


@pytest.mark.parametrize("text", ["", "10", "m", "0m", "-1m", "1.5h", "10 minutes", "9" * 30 + "d"])
def test_other_texts_are_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"expected e\.g\. 10m, 2h or 500steps"):
        Recorder(tmp_path / "run.tide", keep=text)
    assert not list(tmp_path.iterdir())


def test_wrong_option_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["run", "--keep", "10", str(SCRIPT)])
    assert end.value.code == 2
    assert "cannot keep '10' (expected e.g. 10m, 2h or 500steps)" in capsys.readouterr().err


def test_recorder_of_a_tracker_may_keep_a_part(tmp_path: Path) -> None:
    import torch

    path = tmp_path / "run.tide"
    recorder = Recorder(path, keep="1h")
    with MemTracker(record=recorder):
        torch.ones(3)
    recorder.close()
    summary = read_summary(path)
    assert summary.facts["keep"] == "1h"
    assert summary.health.dropped_events == 0
