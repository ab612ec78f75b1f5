# SPDX-License-Identifier: BSD-3-Clause
"""Runs scripts on torch's real CUDA allocator, over a stand-in for the CUDA runtime.

Not part of `make test`, because they need a torch with CUDA: run `make oracle`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from build_runtime import build, needs_it

Script = Callable[..., str]

_BEGIN = """
import threading
import torch, tidegauge
from tidegauge import MemTracker

GPU = torch.device("cuda", 0)
MIB = 2**20

def total(tracker, device=GPU, kind="current"):
    return tracker.get_tracker_snapshot(kind).get(device, {"Total": 0})["Total"]
"""
# torch's autograd threads may abort a process that ends just after a backward on a device.
_END = "\nimport os, sys; sys.stdout.flush(); os._exit(0)\n"


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> str:
    spec = find_spec("torch")
    assert spec is not None
    assert spec.submodule_search_locations
    torch_folder = Path(spec.submodule_search_locations[0])
    if not needs_it(torch_folder):
        pytest.fail(f"{torch_folder} has no CUDA 13; run `make oracle`")
    return " ".join(map(str, build(torch_folder, tmp_path_factory.mktemp("standin"))))


@pytest.fixture
def run(libraries: str) -> Script:
    """Runs the script in a process with two stand-in devices; returns what it printed."""

    def run(script: str, **environment: str) -> str:
        ended = subprocess.run(
            [sys.executable, "-c", _BEGIN + textwrap.dedent(script) + _END],
            env={**os.environ, "LD_PRELOAD": libraries, **environment},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout + ended.stderr

    return run
