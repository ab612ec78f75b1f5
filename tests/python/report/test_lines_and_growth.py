# SPDX-License-Identifier: BSD-3-Clause
"""Lines of the program, and what grows: in reports, comparisons and exports of recorded runs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tidegauge.cli.main import main
from tidegauge.report import read_summary

Capture = pytest.CaptureFixture[str]

LEAK = """\
import sys
import torch
from torch import nn

class TinyNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(64, 256)

    def forward(self, x):
        return self.head(x)

model = TinyNet()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
outputs = []
for _ in range(12):
    output = model(torch.ones(256, 64))
    output.sum().backward()
    optimizer.step()
    outputs.append(output.detach())
    if "--fixed" in sys.argv:
        outputs.clear()
"""
LINE = "leak.py:11 TinyNet.forward"
OUTPUT_BYTES = 256 * 256 * 4


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """leak.tide and fixed.tide with lines, as by default; plain.tide without."""
    folder = tmp_path_factory.mktemp("leak")
    (folder / "leak.py").write_text(LEAK)
    for words in (
        ["leak.py"],
        ["-o", "fixed.tide", "leak.py", "--fixed"],
        ["--stacks", "none", "-o", "plain.tide", "leak.py"],
    ):
        command = [sys.executable, "-m", "tidegauge", "run", "-q", *words]
        subprocess.run(command, cwd=folder, check=True)
    return folder


@pytest.fixture
def here(recordings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for file in recordings.glob("*.tide"):
        shutil.copy(file, tmp_path)
    monkeypatch.chdir(tmp_path)


def test_growth_is_said_first_with_its_origin_and_holder(here: None, capsys: Capture) -> None:
    assert main(["report", "leak.tide"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert (
        "! Grows 256 KiB a step since step 2: 11 tensors float32 [256, 256] from earlier steps "
        f"(2.75 MiB on cpu), made by TinyNet.head addmm at {LINE}, kept alive by the list "
        "`outputs`." in text
    )
    assert text.index("! Grows") < text.index("Peak on cpu")


def test_growth_has_its_figures(here: None) -> None:
    (growth,) = read_summary("leak.tide").growth
    assert (growth.count, growth.size_bytes) == (11, 11 * OUTPUT_BYTES)
    assert (growth.since_step, growth.last_step) == (2, 12)
    assert growth.bytes_per_step == OUTPUT_BYTES
    assert growth.is_large
    assert read_summary("fixed.tide").growth == ()


def test_leaks_are_listed_alone(here: None, capsys: Capture) -> None:
    assert main(["report", "leak.tide", "--leaks"]) == 0
    text = capsys.readouterr().out
    assert "Grows 256 KiB a step" in text
    assert "leak.py:11 TinyNet.forward\n    " in text  # the stack, with full paths
    assert "Peak" not in text
    assert main(["report", "fixed.tide", "--leaks"]) == 0
    assert "Nothing grows" in capsys.readouterr().out
    assert main(["report", "leak.tide", "--leaks", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["growth"]
    assert (row["line"], row["holder"]) == (LINE, "the list `outputs`")


def test_lines_add_up_to_the_peak(here: None, capsys: Capture) -> None:
    (peak,) = read_summary("leak.tide").peaks
    assert sum(line.size_bytes for line in peak.lines) == peak.total_bytes
    assert sum(line.count for line in peak.lines) == sum(group.count for group in peak.tensors)
    by_line = {line.line: line for line in peak.lines}
    assert by_line[LINE].size_bytes == 12 * OUTPUT_BYTES
    assert main(["report", "leak.tide"]) == 0
    text = capsys.readouterr().out
    assert f"  3.00 MiB    12 x {LINE}\n" in text
    assert "record it with" not in text


def test_stacks_have_no_frames_of_torch_or_tidegauge(here: None) -> None:
    (peak,) = read_summary("leak.tide").peaks
    frames = {frame for group in peak.tensors for frame in group.stack}
    assert frames
    assert all("leak.py:" in frame for frame in frames)


def test_report_without_lines_says_how_to_get_them(here: None, capsys: Capture) -> None:
    assert read_summary("plain.tide").peaks[0].lines == ()
    assert main(["report", "plain.tide"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "Lines at the peak" not in text
    assert "record it with `tidegauge run`" in text


def test_diff_compares_lines(here: None, capsys: Capture) -> None:
    assert main(["diff", "fixed.tide", "leak.tide", "--json"]) == 0
    (device,) = json.loads(capsys.readouterr().out)["devices"]
    (change,) = (row for row in device["lines"] if row["name"] == LINE)
    assert change["before_bytes"] == 2 * OUTPUT_BYTES  # of this step and of the one before
    assert change["after_bytes"] == 12 * OUTPUT_BYTES
    assert main(["diff", "fixed.tide", "leak.tide"]) == 0
    assert f"{LINE}\n" in capsys.readouterr().out.partition("Lines at the peak")[2]
    assert main(["diff", "plain.tide", "leak.tide"]) == 0  # one of them has no lines
    assert "Lines at the peak" not in capsys.readouterr().out


def test_flame_graph_by_line_adds_up_to_the_peak(here: None, capsys: Capture) -> None:
    assert main(["export", "leak.tide", "--to", "flamegraph", "--by", "line"]) == 0
    rows = [line.rpartition(" ") for line in capsys.readouterr().out.splitlines()]
    (peak,) = read_summary("leak.tide").peaks
    assert sum(int(size) for _, _, size in rows) == peak.total_bytes
    stack = "cpu;leak.py:17 <module>;leak.py:11 TinyNet.forward;"
    assert any(frames.startswith(stack) for frames, _, _ in rows)
    assert main(["export", "plain.tide", "--to", "flamegraph", "--by", "line"]) == 2
    assert "record it with `tidegauge run`" in capsys.readouterr().err
