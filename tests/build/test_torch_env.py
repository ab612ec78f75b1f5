# SPDX-License-Identifier: BSD-3-Clause
"""Which environment a build for another torch uses: .venv, or one of its own."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest


@pytest.fixture
def checkout(repo: Path, tmp_path: Path) -> Path:
    """A copy whose .venv has the torch that FOUND names, without any torch."""
    for name in ["tools", "requirements"]:
        shutil.copytree(repo / name, tmp_path / name)
    tools = tmp_path / ".venv" / "bin"
    tools.mkdir(parents=True)
    for name, script in {"python": 'case $2 in *torch*) echo "$FOUND" ;; esac', "pip": ":"}.items():
        (tools / name).write_text(f"#!/bin/bash\n{script}\n")
        (tools / name).chmod(0o755)
    return tmp_path


def set_up(checkout: Path, found: str, version: str) -> subprocess.CompletedProcess[str]:
    variables = {k: v for k, v in os.environ.items() if k != "TORCH_ENV"}
    return subprocess.run(
        [str(checkout / "tools" / "setup_torch_env.sh"), version],
        env={**variables, "FOUND": found, "PYTHON": "false"},  # cannot make an environment
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    ("found", "version"),
    [("2.15.0+cu132", "2.15.0"), ("2.15.0+cu132", "2.15.0+cu132"), ("2.15.0+cpu", "2.15.0+cpu")],
)
def test_torch_in_venv_is_not_installed_again(checkout: Path, found: str, version: str) -> None:
    for _ in range(2):
        done = set_up(checkout, found, version)
        assert done.returncode == 0, done.stderr
    link = checkout / "build" / "envs" / f"torch-{version}"
    assert link.resolve() == checkout / ".venv"


@pytest.mark.parametrize(
    ("found", "version"),
    [
        ("2.15.0+cpu", "2.15.0"),  # means the build with CUDA
        ("2.15.0+cu132", "2.15.0+cpu"),
        ("2.15.0+cu132", "2.13.0+cu130"),
        ("2.15.0+cu132", "2.15"),
        ("", "2.15.0"),
    ],
)
def test_another_torch_has_its_own_environment(checkout: Path, found: str, version: str) -> None:
    done = set_up(checkout, found, version)
    assert done.returncode == 1
    assert "cannot make a virtual environment" in done.stderr
    assert not (checkout / "build" / "envs" / f"torch-{version}").is_symlink()


def test_venv_is_left_when_its_torch_changes(checkout: Path) -> None:
    assert set_up(checkout, "2.15.0+cu132", "2.15.0").returncode == 0
    done = set_up(checkout, "2.16.0+cu132", "2.15.0")
    assert "cannot make a virtual environment" in done.stderr
    assert not (checkout / "build" / "envs" / "torch-2.15.0").is_symlink()
    assert (checkout / ".venv" / "bin" / "python").exists()
