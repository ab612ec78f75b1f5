# SPDX-License-Identifier: BSD-3-Clause
"""Runs scripts on torch's real CUDA build, over our stand-in for CUDA.

Not part of `make test`, because they need a torch with CUDA: run `make oracle`.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable

import pytest
from tidegauge import standin
from tidegauge.allocator import Assumptions, DeviceModel

Script = Callable[..., str]
GPU = DeviceModel("", "stand-in", 16 << 30, 9, 0, 132)
NOTHING_ASSUMED = Assumptions(context_bytes=0, communication_bytes=0)

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
def built() -> standin.Standin:
    return standin.build()


@pytest.fixture
def run(built: standin.Standin) -> Script:
    """Runs the script in a process with two stand-in devices; returns what it printed."""

    def run(
        script: str, assumptions: Assumptions = NOTHING_ASSUMED, events: str = "quick", **more: str
    ) -> str:
        environment = standin.make_environment(
            built, GPU, 2, assumptions=assumptions, events=events
        )
        ended = subprocess.run(
            [sys.executable, "-c", _BEGIN + textwrap.dedent(script) + _END],
            env={**environment, **more},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout + ended.stderr

    return run
