# SPDX-License-Identifier: BSD-3-Clause
"""In an environment without torch, everything that only reads files works.

The environment uses the package that `make build` left; test_wheel_without_torch.py does the same
with the wheel that was built without torch.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., str]
COMMANDS = [
    ("report", "run.tide"),
    ("report", "run.tide", "--json"),
    ("report", "run.tide", "--html", "page.html", "--force", "-q"),
    ("info", "run.tide"),
    ("diff", "run.tide", "other.tide"),
    ("diff", "run.tide", "other.tide", "--html", "page.html", "--force", "-q"),
    ("merge", "run.tide"),
    ("replay", "run.tide", "--device", "h100-80g"),
    ("replay", "snapshot.pickle"),
    ("devices",),
    ("devices", "--json"),
    ("export", "run.tide", "--to", "memory-viz", "-o", "viz.pickle", "--force", "-q"),
    ("export", "run.tide", "--to", "perfetto", "-o", "perfetto.json", "--force", "-q"),
    ("export", "run.tide", "--to", "flamegraph"),
    ("export", "run.tide", "--to", "json"),
    ("export", "run.tide", "--to", "csv", "--table", "tensors"),
]


@pytest.fixture(scope="module")
def python(run: Run, repo: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment that contains nothing but tidegauge."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "tidegauge.pth").write_text(f"{repo / 'python'}\n")
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two traces and a memory snapshot, made with torch."""
    import torch
    from tidegauge import MemTracker, export, read_summary

    folder = tmp_path_factory.mktemp("traces")
    for name, width in (("run", 8), ("other", 16)):
        model = torch.nn.Linear(8, width)
        with MemTracker(record=folder / f"{name}.tide") as tracker:
            tracker.track_external(model)
            model(torch.ones(4, 8)).sum().backward()
    with (folder / "snapshot.pickle").open("wb") as file:
        export.to_memory_viz([read_summary(folder / "run.tide")], file)
    return folder


def test_environment_has_no_torch(run: Run, python: Path) -> None:
    assert run(python, "-c", "import importlib.util as u; print(u.find_spec('torch'))") == "None\n"


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_output_equals_that_with_torch(
    run: Run, python: Path, traces: Path, arguments: tuple[str, ...]
) -> None:
    command = ("-m", "tidegauge", *arguments)
    assert run(python, *command, cwd=traces) == run(sys.executable, *command, cwd=traces)


def test_summary_and_its_notebook_display(run: Run, python: Path, traces: Path) -> None:
    code = (
        "import sys, tidegauge\n"
        "summary = tidegauge.read_summary('run.tide')\n"
        "assert summary.peaks[0].categories['Parameter'] == 4 * (8 * 8 + 8)\n"
        "assert 'Parameter' in summary._repr_html_()\n"
        "assert 'numpy' not in sys.modules\n"
    )
    run(python, "-c", code, cwd=traces)


@pytest.mark.parametrize(
    "use",
    [
        *("tidegauge.MemTracker", "tidegauge.simulate", "tidegauge.estimate", "tidegauge.Recorder"),
        *("tidegauge.attach_thread", "tidegauge._C", "tidegauge.mod_tracker"),
    ],
)
def test_missing_torch_is_one_sentence_with_a_command(run: Run, python: Path, use: str) -> None:
    from tidegauge._torch.compat import BUILT_FOR

    code = (
        "import tidegauge\n"
        f"try: {use}\n"
        "except tidegauge.TorchError as error: print(error)\n"
        "else: print('no error')\n"
    )
    assert run(python, "-c", code) == (
        f"this needs torch {BUILT_FOR}, but found none. Run `pip install 'torch=={BUILT_FOR}.*'`.\n"
    )


@pytest.mark.parametrize("arguments", [("run", "train.py"), ("estimate", "train.py")])
def test_command_that_needs_torch_says_so(
    python: Path, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    (tmp_path / "train.py").write_text("")
    done = subprocess.run(
        [python, "-m", "tidegauge", *arguments], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("tidegauge: this needs torch ")
    assert len(done.stderr.splitlines()) == 1


def test_installation_describes_itself(run: Run, python: Path) -> None:
    lines = run(python, "-m", "tidegauge", "info", "--self").splitlines()
    assert "torch           not found" in lines
    assert lines[-1].startswith("Reports only: this needs torch ")
