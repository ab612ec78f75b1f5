# SPDX-License-Identifier: BSD-3-Clause
"""`tidegauge watch` on traces that are still being written."""

from __future__ import annotations

import functools
import os
import pty
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from commands import run_command
from tidegauge import MemTracker, _core
from tidegauge.cli.watch import LiveRun, render
from tidegauge.trackers.recorder import Recorder
from torch import nn

watch = functools.partial(run_command, "watch")


def answers(ledger: _core.Ledger) -> tuple[object, ...]:
    return (
        ledger.fine_current(),
        ledger.fine_peak(),
        ledger.step_peaks(),
        ledger.anomalies(),
    )


def test_each_look_has_the_answers_of_a_new_replay(tmp_path: Path) -> None:
    path = str(tmp_path / "run.tide")
    recorder = Recorder(path)
    model = nn.Linear(64, 64)
    optimizer = torch.optim.Adam(model.parameters())
    with MemTracker(record=recorder) as tracker:
        tracker.track_external(model, optimizer)
        recorder.flush()
        live = LiveRun(path)
        seen = []
        for batch in (4, 16, 8):
            model(torch.ones(batch, 64)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            recorder.flush()
            live.refresh()
            assert answers(live.ledger) == answers(_core.Reader(path).replay())
            assert live.health == []
            seen.append(answers(live.ledger))
        assert seen[0] != seen[1] != seen[2]
        live._dropped = -1  # as if --keep had dropped events
        live.refresh()
        assert answers(live.ledger) == seen[2]
    recorder.close()
    live.refresh()
    assert (live.is_complete, live.has_died) == (True, False)


def test_bytes_now_and_at_the_peak_are_shown(tmp_path: Path) -> None:
    path = str(tmp_path / "run.tide")
    recorder = Recorder(path)
    with MemTracker(record=recorder):
        kept = torch.ones(256 * 1024)
        torch.ones(512 * 1024)  # freed at once
        recorder.flush()
        live = LiveRun(path)
        lines = [line.split() for line in render(live)]
        assert lines[:4] == [
            [path],
            [],
            ["cpu", "now,", "step", "0", "peak,", "step", "0"],
            ["total", "1.00", "MiB", "3.00", "MiB"],
        ]
        del kept
    recorder.close()
    live.refresh()
    assert [line.split() for line in render(live)][3] == ["total", "0", "B", "3.00", "MiB"]
    done = watch(tmp_path, "run.tide")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("\n\nThe run has ended.\n")


KILLED = """
import os, signal, torch
from tidegauge import MemTracker
from tidegauge.trackers.recorder import Recorder

recorder = Recorder("run.tide")
with MemTracker(record=recorder):
    kept = torch.ones(1024)
    recorder.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_end_of_a_killed_process_is_told(tmp_path: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED], cwd=tmp_path, check=False, timeout=300)
    assert killed.returncode == -signal.SIGKILL
    done = watch(tmp_path, "run.tide")
    assert (done.returncode, done.stderr) == (1, "")
    assert "4.00 KiB" in done.stdout
    assert " is gone and did not complete the trace; what it recorded is shown.\n" in done.stdout


def test_wrong_use_is_one_line(tmp_path: Path) -> None:
    done = watch(tmp_path, "missing.tide")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    done = watch(tmp_path, "--every", "soon", "missing.tide")
    assert done.returncode == 2
    assert "invalid time 'soon' (expected e.g. 0.5, in seconds)" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_terminal_is_as_before_after_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    recorder = Recorder(tmp_path / "run.tide")
    with MemTracker(record=recorder):
        torch.ones(10)
        recorder.flush()
        main, terminal = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "tidegauge", "watch", "run.tide"], cwd=tmp_path, stdout=terminal
        )
        os.close(terminal)
        shown = b""
        while b"total" not in shown:
            shown += os.read(main, 4096)
        process.send_signal(number)
        with suppress(OSError):  # at the end of the terminal
            while chunk := os.read(main, 4096):
                shown += chunk
        os.close(main)
        assert process.wait(60) == 128 + number
    recorder.close()
    assert b"\x1b[?1049h" in shown
    assert shown.endswith(b"\x1b[?25h\x1b[?1049l")
