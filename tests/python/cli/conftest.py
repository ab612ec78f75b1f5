# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of traces: before and after a change, two ranks, and a sharded run."""
    from traces import record_sharded_training, record_training

    folder = tmp_path_factory.mktemp("recorded")
    record_training(folder / "before.tide")
    record_training(folder / "after.tide", width=320)
    for rank in (0, 1):
        record_training(
            folder / f"run.rank{rank}.tide", width=256 + 64 * rank, rank=str(rank), world_size="2"
        )
    record_sharded_training(folder / "sharded.tide")
    return folder


@pytest.fixture
def traces(recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """They are in the current folder, so that output does not depend on where it is."""
    for file in recorded.iterdir():
        shutil.copy(file, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path
