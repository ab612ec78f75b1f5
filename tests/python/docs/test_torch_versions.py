# SPDX-License-Identifier: BSD-3-Clause
"""Every expectation that depends on the version of torch is a row in docs/torch-versions.md."""

from __future__ import annotations

import re
from pathlib import Path

import torch_version
from torch_version import Only

TESTS = Path(__file__).parents[1]
DOCUMENT = (TESTS.parents[1] / "docs" / "torch-versions.md").read_text()
ROWS = {name: row for name, row in vars(torch_version).items() if isinstance(row, Only)}


def test_behaviours_of_some_versions_are_documented() -> None:
    rows = {f"| {row.versions} | {row.text} |" for row in ROWS.values()}
    table = DOCUMENT.partition("## Differences between versions")[2].partition("\n## ")[0]
    assert {line for line in table.splitlines() if line.startswith("| ")} - rows == {
        "| torch | behaviour |"
    }
    assert rows - set(table.splitlines()) == set()


def test_versions_are_named_in_one_file_only() -> None:
    """differences.py names the versions in which upstream was mended."""
    allowed = {"torch_version.py", "differences.py"}
    naming = re.compile(r"torch\.__version__\.split|\bTORCH\b")
    sources = {path: path.read_text() for path in TESTS.rglob("*.py") if path != Path(__file__)}
    found = {path.name for path, text in sources.items() if naming.search(text)}
    assert found - allowed == set()


def test_each_behaviour_is_used() -> None:
    texts = [path.read_text() for path in TESTS.rglob("*.py") if path.name != "torch_version.py"]
    assert [name for name in ROWS if not any(name in text for text in texts)] == []
