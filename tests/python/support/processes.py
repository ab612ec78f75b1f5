# SPDX-License-Identifier: BSD-3-Clause
"""Starts a program once for each rank and waits for all of them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path


def run_ranks(script: Path, count: int, arguments: Callable[[int], Sequence[str]]) -> None:
    """`arguments`: of one rank. Fails with the errors of the first rank that fails."""
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "MASTER_ADDR": "localhost",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, script, *arguments(rank)],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]
    for rank in ranks:
        _, errors = rank.communicate(timeout=300)
        assert rank.returncode == 0, errors
