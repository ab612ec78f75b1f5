# SPDX-License-Identifier: BSD-3-Clause
"""`tidegauge estimate` as a program: the user sees the output and exit code of its child."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "tidegauge", "estimate"]
CRASHING = """
import os, signal
def crash(settings, make=build_model):
    if {when}:
        os.kill(os.getpid(), signal.{name})
    return make(settings)
build_model = crash
"""
LISTING = """
import pathlib, tempfile
def show(settings, make=build_model):
    print(*pathlib.Path(tempfile.gettempdir()).rglob("*"), flush=True)
    return make(settings)
build_model = show
"""
WAITING = """
import time
def wait(settings, make=build_model):
    print(settings.batch)
    time.sleep(60 if settings.batch == 3 else 0)
    return make(settings)
build_model = wait
"""
CODES = """
import os, sys
from argparse import Namespace
from tidegauge.cli.child import run_in_child
from tidegauge.cli.main import main
assert "torch" not in sys.modules  # it has threads, which a fork would lose
parent = os.getpid()
def end(args):
    assert os.getpid() != parent
    print(args.code)
    return args.code
for code in (0, 1, 2, 3, 130):
    assert run_in_child(Namespace(code=code), end) == code
def fail(args):
    raise LookupError("our own fault")
assert run_in_child(Namespace(), fail) == 1
"""


@pytest.fixture(autouse=True)
def temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder for the program, which must be empty however the program ends."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    yield folder
    assert list(folder.glob("tidegauge-*")) == []


def estimate(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=False)


def add_to(model_file: str, source: str) -> None:
    with open(model_file, "a") as file:
        file.write(source)


def test_exit_code_equals_that_of_the_child() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODES], capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["0", "1", "2", "3", "130"]
    assert done.stderr.endswith("LookupError: our own fault\n")
    assert done.returncode == 0


def test_exit_code_for_does_not_fit_is_the_same_without_a_child(model_file: str) -> None:
    done = estimate(model_file, "--device-memory", "10MiB", "--no-advice", "--json")
    assert json.loads(done.stdout)["verdict"] == "does not fit"
    assert (done.returncode, done.stderr) == (3, "")


@pytest.mark.parametrize(
    ("name", "options", "hint"),
    [
        ("SIGSEGV", [], "; for a rougher estimate with CPU kernels use --simulate cpu"),
        ("SIGSEGV", ["--simulate", "cpu"], ""),
        ("SIGKILL", ["-q"], "; the machine may be out of memory"),
    ],
)
def test_crash_is_reported_with_what_to_do(
    model_file: str, name: str, options: list[str], hint: str
) -> None:
    add_to(model_file, CRASHING.format(when=True, name=name))
    done = estimate(model_file, *options)
    assert done.stdout == ""
    assert done.stderr == f"tidegauge: the simulation was killed by {name}{hint}\n"
    assert done.returncode == 128 + signal.Signals[name]


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGKILL", "SIGTERM"])
def test_killed_child_leaves_no_temporary_files(
    model_file: str, temporary_folder: Path, name: str
) -> None:
    """A temporary folder exists, without a trace in it, when the second point kills the child."""
    add_to(model_file, CRASHING.format(when="settings.batch == 2", name=name) + LISTING)
    done = estimate(model_file, "--simulate", "cpu", "--sweep", "batch=1,2")
    *listings, _ = done.stderr.splitlines()
    assert len(listings) == 2
    for paths in (list(map(Path, listing.split())) for listing in listings):
        assert paths
        assert all(temporary_folder in path.parents for path in paths)
        assert not any(path.suffix == ".tide" for path in paths)
    assert done.returncode == 128 + signal.Signals[name]


@pytest.mark.parametrize("is_from_terminal", [True, False], ids=["ctrl-c", "kill"])
def test_interrupt_prints_the_results_so_far(model_file: str, is_from_terminal: bool) -> None:
    """Ctrl-C signals the child and its parent, `kill` only the parent."""
    add_to(model_file, WAITING)
    keyboard, terminal = os.openpty()
    with subprocess.Popen(
        [*COMMAND, model_file, "--sweep", "batch=1,2,3,4", "--json"],
        stdin=terminal,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    ) as process:
        assert process.stderr is not None
        while process.stderr.readline() not in ("3\n", ""):
            pass
        if is_from_terminal:
            os.write(keyboard, b"\x03")
        else:
            process.send_signal(signal.SIGINT)
        output, errors = process.communicate()
    os.close(keyboard)
    os.close(terminal)
    assert [point["values"]["batch"] for point in json.loads(output)["points"]] == ["1", "2"]
    assert (process.returncode, errors) == (130, "")
