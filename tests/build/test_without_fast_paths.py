# SPDX-License-Identifier: BSD-3-Clause
"""A build without src/capture/fast has the same events and figures as the usual build."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., str]


@pytest.fixture(scope="module")
def packages(run: Run, repo: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder to import a tidegauge without fast paths from."""
    folder = tmp_path_factory.mktemp("general_path")
    options = [f"-DPython_EXECUTABLE={sys.executable}", "-DTIDEGAUGE_FAST_PATHS=OFF"]
    run("cmake", "-S", repo, "-B", folder / "build", "-G", "Ninja", *options)
    run("cmake", "--build", folder / "build")
    built = shutil.ignore_patterns("*.so", "include", "lib", "share", "__pycache__")
    shutil.copytree(repo / "python" / "tidegauge", folder / "tidegauge", ignore=built)
    run("cmake", "--install", folder / "build", "--prefix", folder / "tidegauge")
    return folder


def read_switch(run: Run, environment: dict[str, str]) -> str:
    """Whether the package that the environment imports has fast paths."""
    code = "from tidegauge import _C; print(_C.set_fast_paths(True))"
    return run(sys.executable, "-c", code, env=environment)


@pytest.mark.long
def test_events_and_figures_are_the_same(
    run: Run, repo: Path, packages: Path, tmp_path: Path
) -> None:
    script = repo / "tests" / "python" / "support" / "record_scenarios.py"
    general = {**os.environ, "PYTHONPATH": str(packages)}
    assert read_switch(run, general) == "False\n"
    assert read_switch(run, {**os.environ}) == "True\n"
    run(sys.executable, script, tmp_path / "general", env=general)
    run(sys.executable, script, tmp_path / "fast")
    general_events, fast_events = (
        json.loads((tmp_path / name).read_text()) for name in ("general", "fast")
    )
    assert general_events.keys() == fast_events.keys()
    differing = [name for name, events in fast_events.items() if events != general_events[name]]
    assert differing == []
