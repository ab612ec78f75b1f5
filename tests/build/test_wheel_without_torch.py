# SPDX-License-Identifier: BSD-3-Clause
"""The sdist builds, and the wheel of it that was built without torch needs none."""

from __future__ import annotations

import json
import os
import re
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from tidegauge._torch.compat import REBUILD, SUPPORTED

Run = Callable[..., str]

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def wheel(run: Run, repo: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    without = {**os.environ, "TIDEGAUGE_WITH_TORCH": "OFF"}
    code = f"from scikit_build_core.build import build_sdist; build_sdist({str(folder)!r})"
    run(sys.executable, "-c", code, cwd=repo, env=without)
    (sdist,) = folder.glob("tidegauge-*.tar.gz")
    with tarfile.open(sdist) as file:
        file.extractall(folder, filter="data")
    (sources,) = (path for path in folder.iterdir() if path.is_dir())
    tools = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    build = sources / "tools" / "build_wheel.sh"
    run(build, folder, sys.executable, "none", env={**os.environ, "PATH": tools})
    (wheel,) = folder.glob("tidegauge-*.whl")
    return wheel


@pytest.fixture(scope="module")
def site(run: Run, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """site-packages of a new environment that contains the wheel alone."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", folder)
    run(folder / "bin" / "pip", "install", "--no-index", wheel)
    (site,) = folder.glob("lib/python*/site-packages")
    return site


@pytest.fixture
def command(site: Path) -> Path:
    return site.parents[2] / "bin" / "tidegauge"


def test_wheel_contains_nothing_for_torch(wheel: Path, site: Path) -> None:
    assert re.fullmatch(r"tidegauge-[\d.]+\+notorch-cp\d+-cp\d+-manylinux_\S+", wheel.name)
    (metadata,) = site.glob("tidegauge-*.dist-info/METADATA")
    assert "Requires-Dist: torch" not in metadata.read_text()
    facts = json.loads(metadata.with_name("build.json").read_text())
    assert facts == {"torch_minor": "", "build_type": "Release"}
    assert not [*site.glob("tidegauge/_C.*.so"), *site.glob("tidegauge/lib"), *site.glob("*.libs")]


def test_contains_sqlite(run: Run, site: Path) -> None:
    (extension,) = site.glob("tidegauge/_core.*.so")
    assert "sqlite" not in run("readelf", "-d", extension)


def test_report_equals_that_with_torch(run: Run, command: Path, tmp_path: Path) -> None:
    import torch
    from tidegauge import MemTracker

    with MemTracker(record=tmp_path / "run.tide"):
        torch.nn.Linear(8, 8)(torch.ones(2, 8)).sum().backward()
    arguments = ("report", "run.tide", "--json")
    with_torch = run(sys.executable, "-m", "tidegauge", *arguments, cwd=tmp_path)
    assert run(command, *arguments, cwd=tmp_path) == with_torch


def test_tracker_is_refused_with_a_command(run: Run, command: Path) -> None:
    code = (
        "import tidegauge\n"
        "try: tidegauge.MemTracker\n"
        "except tidegauge.TorchError as error: print(error)\n"
    )
    assert run(command.with_name("python"), "-c", code) == (
        "this needs the part of tidegauge that uses torch, but it was built without torch. Run "
        f"`pip install 'torch=={SUPPORTED[-1]}.*'`, then `{REBUILD}` in the sources of tidegauge.\n"
    )
    assert "built for       no torch\n" in run(command, "info", "--self")
