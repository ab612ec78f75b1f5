# SPDX-License-Identifier: BSD-3-Clause
"""Trackers say the same about a model on CUDA as on the CPU: categories, modules, peaks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tidegauge import standin
from tidegauge.allocator import Assumptions, DeviceModel

SCRIPT = Path(__file__).parent / "labelled_steps.py"
GPU = DeviceModel("", "stand-in", 16 << 30, 9, 0, 132)
NOTHING = Assumptions(context_bytes=0, communication_bytes=0)


def train(device: str, kind: str, environment: dict[str, str] | None) -> Any:
    ended = subprocess.run(
        [sys.executable, SCRIPT, device, kind],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


@pytest.mark.parametrize(("kind", "modules"), [("plain", 15), ("checkpointed", 15), ("fsdp", 4)])
def test_labels_on_cuda_are_those_on_the_cpu(
    built: standin.Standin, kind: str, modules: int
) -> None:
    environment = standin.make_environment(built, GPU, 1, assumptions=NOTHING)
    on_cuda, on_cpu = train("cuda", kind, environment), train("cpu", kind, None)
    assert len(on_cpu["peak"]) >= 6
    assert len(on_cpu["modules"]) == modules
    for name, expected in on_cpu["modules"].items():
        assert on_cuda["modules"][name] == expected, name
    assert on_cuda == on_cpu
