# SPDX-License-Identifier: BSD-3-Clause
"""Makes the helper modules of this folder importable: `from observe import ours, upstream`."""

import gc
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite("both_mem_trackers", "observe")  # they say what differs


@pytest.fixture(autouse=True, scope="module")
def _freeze_what_stays() -> Iterator[None]:
    """Most tests collect garbage first. To look through all of torch each time took longer than the
    tests themselves."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def _keep_formatwarning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Upstream's tracker replaces it for the whole process when it warns."""
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
