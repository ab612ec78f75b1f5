# SPDX-License-Identifier: BSD-3-Clause
"""Another library, or a newer torch, has a fallback or kernels for our dispatch key: same events
(src/capture/compat/op_route.h)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parents[1] / "support"


Events = dict[str, list[str]]


def record_scenarios(path: Path, *options: str) -> Events:
    command = [sys.executable, str(SUPPORT / "record_scenarios.py"), str(path), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1100)
    assert done.returncode == 0, done.stderr
    assert "Overriding a previously registered kernel" not in done.stderr
    events: Events = json.loads(path.read_text())
    return events


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Events:
    return record_scenarios(tmp_path_factory.mktemp("events") / "alone")


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("option", ["--shared", "--kernels"])
def test_events_are_the_same_if_the_key_is_shared(
    alone: Events, option: str, tmp_path: Path
) -> None:
    shared = record_scenarios(tmp_path / "shared", option)
    assert alone.keys() == shared.keys()
    assert [name for name in alone if alone[name] != shared[name]] == []
    assert min(len(alone[f"simulate {device}"]) for device in ("cpu", "cuda")) > 50


def test_trackers_work_if_only_the_key_of_simulated_tensors_is_taken() -> None:
    code = """
import torch
library = torch.library.Library("_", "IMPL")
library.fallback(torch.library.fallthrough_kernel, "DeferredInit")
from tidegauge import MemTracker, simulate
with MemTracker() as tracker:
    x = torch.ones(1024)
    print(tracker.get_tracker_snapshot("current")[torch.device("cpu")]["Total"])
try:
    with simulate():
        pass
except NotImplementedError as error:
    print(error)
with MemTracker() as tracker:
    y = torch.ones(1024)
print(torch._C._dispatch_tls_is_dispatch_key_included("Fake"))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    first, second, third = done.stdout.splitlines()
    assert first == "4096"
    assert "DeferredInit" in second
    assert third == "False"
