# SPDX-License-Identifier: BSD-3-Clause
"""Problems with a file are reported before the training, or counted during it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from tidegauge import FormatError, IoError, MemTracker, Recorder, _core
from traces import name_devices

TRAINING = """
import sys, torch
from tidegauge import MemTracker, Recorder
model = torch.nn.Sequential(*(torch.nn.Linear(16, 16) for _ in range(8)))
optimizer = torch.optim.Adam(model.parameters())
recorder = Recorder(sys.argv[1])
tracker = MemTracker(record=recorder)
tracker.track_external(model, optimizer)
torch.set_num_threads(1)
with tracker:
    for step in range(int(sys.argv[2])):
        optimizer.zero_grad()
        model(torch.ones(4, 16)).sum().backward()
        optimizer.step()
        if step == 9:
            recorder.flush()
            print("trains", flush=True)
"""


def step_under(tracker: MemTracker, steps: int = 1) -> None:
    with tracker:
        for _ in range(steps):
            torch.nn.Linear(4, 4)(torch.zeros(2, 4)).sum().backward()


def test_existing_file_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "run.tide"
    path.write_text("precious")
    with pytest.raises(IoError, match="exists; choose another name"):
        MemTracker(record=path)
    assert path.read_text() == "precious"
    step_under(MemTracker(record=Recorder(path, overwrite=True)))
    assert _core.Reader(str(path)).event_count() > 0


def test_missing_folder_is_named_before_the_training(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="folder does not exist"):
        MemTracker(record=tmp_path / "no" / "run.tide")


def test_end_of_a_module_is_no_event_for_a_tracker_without_modules(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 2)
    with MemTracker():
        model(torch.ones(1, 2))
        late = MemTracker()
        del model
        late._native.record_to(Recorder(tmp_path / "run.tide")._native)


def test_end_of_a_module_is_an_event_for_trackers_that_saw_it(tmp_path: Path) -> None:
    early, late = Recorder(tmp_path / "early.tide"), Recorder(tmp_path / "late.tide")
    model = torch.nn.Linear(2, 2, bias=False)
    with MemTracker(record=early):
        model(torch.ones(1, 2))
        with MemTracker(record=late):
            kept = torch.ones(8)
            early.flush()
            before = early.written_events
            del model
    early.close()
    late.close()
    assert early.written_events - before == len(["its weight", "it"])
    assert late.written_events == len(["entry", "kept"])
    del kept


def test_recorder_serves_one_tracker(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run.tide")
    MemTracker(record=recorder)
    with pytest.raises(ValueError, match="has a tracker already"):
        MemTracker(record=recorder)


def test_full_disk_drops_events_and_the_training_continues(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "run.tide", max_file_bytes=96 * 1024)
    tracker = MemTracker(record=recorder)
    with pytest.warns(UserWarning, match=r"lacks .* events \(database or disk is full\)"):
        step_under(tracker, steps=1000)
    assert tracker.get_tracker_snapshot("peak")
    assert recorder.lost_events > 0
    recorder.close()
    assert _core.Reader(recorder.path).event_count() == recorder.written_events


def test_second_process_with_the_same_file_is_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.tide"
    first = Recorder(path)
    tracker = MemTracker(record=first)
    step_under(tracker)
    second = Recorder(path, overwrite=True)
    with pytest.warns(UserWarning, match=r"replaced.*give each process a file of its own"):
        step_under(tracker)
    assert "run.tide is losing events (the file was deleted or replaced" in capfd.readouterr().err
    step_under(MemTracker(record=second))
    first.close()
    second.close()
    reader = _core.Reader(str(path))
    assert reader.is_complete()
    assert reader.event_count() == second.written_events


def test_loss_is_reported_at_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    recorder = Recorder(tmp_path / "run.tide", max_file_bytes=96 * 1024)
    tracker = MemTracker(record=recorder)

    def train() -> None:
        deadline = time.monotonic() + 60
        while "is losing events" not in (text := capfd.readouterr().err):
            torch.nn.Linear(4, 4)(torch.zeros(2, 4)).sum().backward()
            assert time.monotonic() < deadline
        assert text.count("\n") == 1

    with pytest.warns(UserWarning, match="lacks"), tracker:
        train()
    recorder.close()


def test_forked_child_records_nothing(tmp_path: Path) -> None:
    path = tmp_path / "run.tide"
    tracker = MemTracker(record=path)
    with tracker:
        torch.zeros(8)
        child = os.fork()
        if child == 0:
            torch.zeros(1 << 20)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        torch.zeros(16)
    live = name_devices(tracker._native.peak())
    assert _core.Reader(str(path)).replay().peak() == live


def run_training(path: Path, steps: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", TRAINING, str(path), str(steps)], stdout=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(i, marks=pytest.mark.long) for i in range(3, 50))]
)
def test_killed_run_leaves_a_valid_file(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "run.tide"
    process = run_training(path, 1_000_000)
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(1.6 * random.Random(seed).random())  # it writes four times a second
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    reader = _core.Reader(str(path))
    ledger = reader.replay()
    assert reader.event_count() > 1000
    assert not reader.is_complete()
    assert reader.gaps() == []
    assert ledger.anomalies() == (0, "")
    ((device, sizes),) = ledger.peak()
    parameter_bytes = 8 * (16 * 16 + 16) * 4
    assert device == "cpu"
    assert sizes[0] == parameter_bytes


def test_process_exit_completes_the_file(tmp_path: Path) -> None:
    process = run_training(tmp_path / "run.tide", 5)
    process.communicate()
    assert process.returncode == 0
    assert _core.Reader(str(tmp_path / "run.tide")).is_complete()


def test_bad_files_give_one_clean_error(tmp_path: Path) -> None:
    path = tmp_path / "run.tide"
    with pytest.raises(IoError, match="No such file"):
        _core.Reader(str(path))
    path.write_bytes(b"no trace" * 1000)
    with pytest.raises(FormatError, match="is not a tidegauge trace"):
        _core.Reader(str(path))
    with pytest.raises(ValueError, match="is not a tidegauge trace"):
        _core.Reader(str(path))
