# SPDX-License-Identifier: BSD-3-Clause
from __future__ import annotations

from pathlib import Path

import pytest
import small_model


@pytest.fixture
def model_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """`small_model.py` in the current folder, so that the output does not depend on its path."""
    source = Path(small_model.__file__)
    (tmp_path / source.name).write_text(source.read_text())
    monkeypatch.chdir(tmp_path)
    return source.name
