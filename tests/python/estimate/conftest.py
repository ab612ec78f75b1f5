# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def model_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """`small_model.py` in the current folder, so that output does not depend on where it is."""
    source = Path(__file__).parent / "small_model.py"
    (tmp_path / source.name).write_text(source.read_text())
    monkeypatch.chdir(tmp_path)
    return source.name
