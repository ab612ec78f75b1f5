# SPDX-License-Identifier: BSD-3-Clause
"""The tests that docs/differences.md names as proofs exist."""

import re
from pathlib import Path

PYTHON_TESTS = Path(__file__).parents[1]
TEXT = (PYTHON_TESTS.parents[1] / "docs" / "differences.md").read_text()


def test_every_proof_is_a_test() -> None:
    sources = "".join(path.read_text() for path in PYTHON_TESTS.rglob("test_*.py"))
    defined = set(re.findall(r"def (test_\w+)\(", sources))
    proofs = set(re.findall(r"\btest_\w+\b(?!\.py)", TEXT))
    assert len(proofs) > 30
    assert proofs - defined == set()


def test_every_row_has_a_proof() -> None:
    tables = [line for line in TEXT.splitlines() if line.startswith("| ") and line.count("|") == 5]
    rows = [line for line in tables if not line.startswith("| case ")]
    assert len(rows) > 30
    assert [row for row in rows if "test_" not in row] == []
