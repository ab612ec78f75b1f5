# SPDX-License-Identifier: BSD-3-Clause
"""Traces that earlier versions recorded can be read and give the figures of those versions.

One thing changed since: parameters belong to the modules of their FSDP units, not to no module."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TRACES = Path(__file__).parents[2] / "golden" / "traces"


def expect_same(found: Any, expected: Any, where: str) -> None:
    """Keys may have been added since, but none changed or vanished."""
    if isinstance(expected, dict):
        for key, value in expected.items():
            assert key in found, f"{where}.{key} is missing"
            expect_same(found[key], value, f"{where}.{key}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), where
        for i, value in enumerate(expected):
            expect_same(found[i], value, f"{where}[{i}]")
    else:
        assert found == expected, where


@pytest.mark.parametrize("name", sorted(path.stem for path in TRACES.glob("*.tide")))
def test_report_has_the_figures_of_the_version_that_recorded(name: str) -> None:
    command = [sys.executable, "-m", "tidegauge", "report", str(TRACES / f"{name}.tide"), "--json"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    expect_same(json.loads(output), json.loads((TRACES / f"{name}.json").read_text()), name)


def test_old_traces_of_each_format_are_there() -> None:
    versions = set()
    for path in TRACES.glob("*.tide"):
        header = path.read_bytes()[:100]
        versions.add(int.from_bytes(header[60:64], "big"))  # PRAGMA user_version
    assert versions == {1002, 1003}
