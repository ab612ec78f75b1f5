# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of traces."""
    from traces import record_all

    return record_all(tmp_path_factory.mktemp("recorded"))


@pytest.fixture
def traces(recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """They are in the current folder, so that output does not depend on where it is."""
    for file in recorded.iterdir():
        shutil.copy(file, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path
