# SPDX-License-Identifier: BSD-3-Clause
"""Makes the helper modules of this folder importable: `from observe import ours, upstream`."""

import sys
import warnings
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite("both_mem_trackers", "observe")  # they say what differs


@pytest.fixture(autouse=True)
def _keep_formatwarning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Upstream's tracker replaces it for the whole process when it warns."""
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
