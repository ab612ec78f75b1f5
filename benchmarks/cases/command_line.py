# SPDX-License-Identifier: BSD-3-Clause
"""How long commands take that need no torch, in an environment without torch."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import ROUNDS, Ratio

ROOT = Path(__file__).parents[2]
COMMANDS = {
    "tidegauge --help": ["--help"],
    "tidegauge report": ["report", str(ROOT / "tests/golden/traces/format_1.2_sharded.tide")],
}


def run() -> list[Ratio]:
    return []


def bars() -> list[tuple[str, float, float]]:
    """(name, value, at most)"""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        (site,) = Path(folder).glob("lib/python*/site-packages")
        (site / "tidegauge.pth").write_text(f"{ROOT / 'python'}\n")
        python = f"{folder}/bin/python"
        return [
            (
                f"CPU seconds of `{name}` without torch",
                statistics.median(_cpu_seconds([python, "-m", "tidegauge", *arguments])),
                0.3,
            )
            for name, arguments in COMMANDS.items()
        ]


def _cpu_seconds(command: list[str]) -> list[float]:
    seconds = []
    for _ in range(ROUNDS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return seconds
