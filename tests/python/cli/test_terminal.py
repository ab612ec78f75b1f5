# SPDX-License-Identifier: BSD-3-Clause
"""What commands show on a terminal only: progress, a live view, and lines as wide as it is."""

from __future__ import annotations

import re
import signal
import sys
from pathlib import Path

import pytest
import small_model
from terminal import open_terminal
from tidegauge.cli import progress as progress_module
from tidegauge.cli.progress import Progress

TIDEGAUGE = [sys.executable, "-m", "tidegauge"]
SLOW = """
import time, torch

kept = torch.ones(1024)
while True:
    torch.ones(2048)
    time.sleep(0.05)
"""


def test_progress_tells_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: now)
    progress = Progress(is_shown=False)
    assert progress.describe() == "run 0"
    progress.begin(96)
    assert progress.describe() == "run 1 of 96"
    for done, _ in enumerate(progress.count(range(4)), 1):
        now = 100.0 + 2.5 * done
    assert progress.describe() == "run 5 of 96, 4 min left"  # 92 runs of 2.5 s
    for _ in progress.count(range(76)):
        pass
    now = 140.0
    assert progress.describe() == "run 81 of 96, 8 s left"  # 16 runs of 0.5 s


def test_a_sweep_shows_its_progress_and_erases_it(tmp_path: Path) -> None:
    source = Path(small_model.__file__)
    (tmp_path / source.name).write_text(source.read_text())
    command = [*TIDEGAUGE, "estimate", source.name, "--sweep", "optimizer=sgd,adam"]
    with open_terminal(command, tmp_path) as terminal:
        text, code = terminal.read_all()
    assert code == 0
    assert re.search(r"\r\x1b\[Krun 1 of 2: building the model", text)
    assert re.search(r"\r\x1b\[Krun 2 of 2, \d+ s left: building the model", text)
    table = text.rpartition("\x1b[K")[2].splitlines()
    assert table[0].startswith("optimizer")
    assert [line.split()[0] for line in table[1:3]] == ["sgd", "adam"]


def test_watch_shows_a_run_that_goes_on_and_tells_its_death_at_once(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    with open_terminal([*TIDEGAUGE, "run", "-q", "slow.py"], tmp_path) as running:
        path = tmp_path / "slow.tide"
        while not path.exists():
            assert running.process.poll() is None
        watching = [*TIDEGAUGE, "watch", "--every", "0.1", "slow.tide"]
        with open_terminal(watching, tmp_path) as terminal:
            shown = terminal.read_until("12.0 KiB")  # the peak: both tensors
            assert "4.00 KiB" in shown
            assert "is gone" not in shown
            running.process.send_signal(signal.SIGKILL)
            running.process.wait()
            text, code = terminal.read_all()
    assert code == 1
    assert f"Process {running.process.pid} is gone and did not complete the trace" in text


@pytest.mark.parametrize(("columns", "widest"), [(40, 60), (100, 100), (300, 200)])
def test_text_is_as_wide_as_the_terminal(columns: int, widest: int, recorded: Path) -> None:
    command = [*TIDEGAUGE, "diff", "before.tide", "after.tide"]
    with open_terminal(command, recorded, columns) as terminal:
        text, _ = terminal.read_all()
    lines = [line.rstrip() for line in text.splitlines()]
    assert max(map(len, lines)) <= widest
    assert columns == 40 or not any("…" in line for line in lines)
