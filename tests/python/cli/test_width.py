# SPDX-License-Identifier: BSD-3-Clause
"""Text of every command that prints tables is as wide as the terminal."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import small_model
from tidegauge._util import formatting
from tidegauge.cli.main import main

Show = Callable[..., str]
WIDTHS = (60, 100, 200)
LONG_NAME = "blocks.11.attention.projection_of_the_queries_and_keys_and_values"
DEVICE = ("--device", "rtx-pro-6000")
FEW_BYTES = ("--assume", "context=1MiB", "--assume", "communication=1MiB")
LARGE = ("--fsdp", "4", "--set", "batch=4096", *FEW_BYTES)
REPORTS = [
    ("report", "before.tide"),
    ("report", "sharded.tide"),
    ("report", "run.rank1.tide", "--leaks"),
    ("info", "run.rank0.tide"),
    ("diff", "before.tide", "after.tide"),
    ("merge", "run.rank0.tide", "run.rank1.tide"),
    ("replay", "sharded.tide", *DEVICE),
    ("devices", "-v"),
]
SIMULATED = [
    ("estimate", *LARGE, "--device-memory", "130MiB"),
    ("estimate", "--rank", "all", "--fsdp", "7", *DEVICE, "--top", "3"),
    ("estimate", "--sweep", "batch=4,64", "--sweep", "ac=none,full:0-1,selective:2", *DEVICE),
    ("estimate", "--max", "batch", "--device-memory", "40MiB", *FEW_BYTES),
    ("plan", "--device", "rtx-6000-ada", "--speed", "l40s", *LARGE[:4]),
]


def find_too_wide(text: str, width: int) -> list[str]:
    """A command to be copied stays one line."""
    lines = text.splitlines()
    return [each for each in lines if len(each) > width and "  tidegauge " not in each]


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Show:
    """The text of a command on a terminal of this width."""

    def show(width: int, *command: str) -> str:
        monkeypatch.setattr(formatting, "is_terminal", lambda stream: stream is sys.stdout)
        monkeypatch.setenv("COLUMNS", str(width))
        assert main([*command]) in (0, 3), capsys.readouterr().err
        return capsys.readouterr().out

    return show


@pytest.mark.parametrize("command", REPORTS, ids=" ".join)
def test_reports_are_as_wide_as_the_terminal(
    command: tuple[str, ...], recorded: Path, shown: Show, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(recorded)
    texts = {width: shown(width, *command) for width in WIDTHS}
    assert {width: find_too_wide(text, width) for width, text in texts.items()} == {
        width: [] for width in WIDTHS
    }
    if "-v" in command:  # sentences with figures
        return
    # Folded or not, no figure is lost.
    figures = [sorted(re.findall(r"[\d.,]+ [KMG]iB", text)) for text in texts.values()]
    assert figures[0] == figures[1] == figures[2]


@pytest.mark.parametrize("command", SIMULATED, ids=" ".join)
def test_simulated_runs_are_as_wide_as_the_terminal(
    command: tuple[str, ...], tmp_path: Path, shown: Show, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(small_model.__file__, LONG_NAME + ".py")
    name, *options = command
    for width in WIDTHS:
        assert find_too_wide(shown(width, name, LONG_NAME + ".py", *options), width) == []
