# SPDX-License-Identifier: BSD-3-Clause
"""Fixtures for tests of the build products."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., str]


@pytest.fixture(scope="session")
def repo() -> Path:
    return Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def package(repo: Path) -> Path:
    """The package as `make build` leaves it, laid out like the wheel."""
    return repo / "python" / "tidegauge"


@pytest.fixture(scope="session")
def run() -> Run:
    """Runs a command and returns its output; fails with the output if the command failed."""

    def run(*command: str | Path, **options: object) -> str:
        done = subprocess.run(
            [str(word) for word in command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            **options,  # type: ignore[call-overload]
        )
        assert done.returncode == 0, done.stdout
        return str(done.stdout)

    return run
