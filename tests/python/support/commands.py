# SPDX-License-Identifier: BSD-3-Clause
"""Runs `tidegauge` in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def run_command(
    name: str, folder: Path, *arguments: str, launcher: tuple[str, ...] = (), **variables: str
) -> subprocess.CompletedProcess[str]:
    """`launcher`: what comes before `-m`; by default the running Python."""
    return subprocess.run(
        [*(launcher or (sys.executable,)), "-m", "tidegauge", name, *arguments],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", **variables},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
