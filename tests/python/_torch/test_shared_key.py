# SPDX-License-Identifier: BSD-3-Clause
"""Another library, or a newer torch, has a fallback for our dispatch key: same events
(src/capture/compat/op_route.h)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parents[1] / "support"


def record_scenarios(path: Path, *options: str) -> dict[str, list[str]]:
    command = [sys.executable, str(SUPPORT / "record_scenarios.py"), str(path), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    events: dict[str, list[str]] = json.loads(path.read_text())
    return events


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, list[str]], ...]:
    folder = tmp_path_factory.mktemp("events")
    return record_scenarios(folder / "alone"), record_scenarios(folder / "shared", "--shared")


def test_events_are_the_same_if_the_key_is_shared(both: tuple[dict[str, list[str]], ...]) -> None:
    alone, shared = both
    assert alone.keys() == shared.keys()
    assert [name for name in alone if alone[name] != shared[name]] == []
    assert len(alone["simulate"]) > 50
