# SPDX-License-Identifier: BSD-3-Clause
"""Many ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tidegauge import MemTracker, Recorder
from tidegauge.cli.main import main
from torch import nn


def test_64_ranks_are_merged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = []
    model = nn.Linear(8, 8)
    for rank in range(64):
        path = tmp_path / f"run.rank{rank}.tide"
        facts = {"rank": str(rank), "world_size": "64"}
        recorder = Recorder(path, facts=facts)
        with MemTracker(record=recorder):
            model(torch.ones(1 + rank, 8)).sum().backward()
        recorder.close()
        paths.append(str(path))
    monkeypatch.chdir(tmp_path)
    assert main(["merge", *paths]) == 0
    output = capsys.readouterr().out
    assert "64 ranks" in output or "rank 63" in output or "63" in output.split()
    assert main(["report", *paths[:2], "--html", "page.html"]) == 0
