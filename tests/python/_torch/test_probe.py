# SPDX-License-Identifier: BSD-3-Clause
"""tools/probe_torch.py finds nothing missing with this torch, and finds what does not work."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROBE = Path(__file__).parents[3] / "tools" / "probe_torch.py"


def probe(breakage: str = "pass") -> list[str]:
    script = (
        f"import runpy, tidegauge\n{breakage}\nrunpy.run_path({str(PROBE)!r}, run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    missing: Any = json.loads(done.stdout.splitlines()[-1])
    return list(missing)


def test_nothing_is_missing() -> None:
    assert probe() == []


@pytest.mark.parametrize(
    ("breakage", "features"),
    [
        ("tidegauge._C.gradients_made = lambda *args: None", {"MemTracker", "simulate"}),
        ("tidegauge._C.unit_reduced = 'not a function'", {"FSDPMemTracker"}),
        ("tidegauge._C.module_enter = lambda *args: False", {"ModTracker"}),
    ],
)
def test_feature_with_wrong_figures_is_missing(breakage: str, features: set[str]) -> None:
    """All signatures still fit, so only a program that runs can find it."""
    found = {text.partition(" does not work with torch ")[0] for text in probe(breakage)}
    assert features <= found
