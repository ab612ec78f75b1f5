# SPDX-License-Identifier: BSD-3-Clause
"""Our allocator does what torch's own CUDA allocator does, at every event of random lives."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tidegauge import standin
from tidegauge.allocator import Assumptions, DeviceModel, replay_snapshot

NOTHING = Assumptions(context_bytes=0, communication_bytes=0)
LARGE, SMALL = 1 << 40, 2 << 30
# Settings, memory of the device, and events (tidegauge.standin.Events).
RUNS = {
    "default": ("", LARGE, "quick"),
    "slow events": ("", LARGE, "slow"),
    "low memory": ("", SMALL, "quick"),
    "low memory, slow events": ("", SMALL, "slow"),
    "max split": ("max_split_size_mb:64", LARGE, "quick"),
    "max split, low memory": ("max_split_size_mb:64", SMALL, "slow"),
    "rounded up": ("roundup_power2_divisions:4", LARGE, "slow"),
    "garbage collection": ("garbage_collection_threshold:0.6", SMALL, "quick"),
    "expandable": ("expandable_segments:True", LARGE, "quick"),
    "expandable, low memory": ("expandable_segments:True", SMALL, "slow"),
}

# Not equal yet (docs/allocator.md).
DIFFERENT = {"expandable, low memory"}
NAMES = [
    pytest.param(name, marks=pytest.mark.xfail(strict=True) if name in DIFFERENT else ())
    for name in RUNS
]


def live(built: standin.Standin, folder: Path, name: str, actions: int, seeds: range) -> list[str]:
    """Leads the lives; returns the differences."""
    conf, memory_bytes, events = RUNS[name]
    environment = standin.make_environment(
        built,
        DeviceModel("", "stand-in", memory_bytes, 9, 0, 132),
        1,
        assumptions=NOTHING,
        events="slow" if events == "slow" else "quick",
    )
    environment["PYTORCH_ALLOC_CONF"] = conf
    script = Path(__file__).parent / "random_life.py"
    command = [sys.executable, script, str(actions), folder, *map(str, seeds)]
    subprocess.run(command, env=environment, check=True, timeout=3000)
    different = []
    for path in sorted(folder.glob("*.pickle")):
        (replay,) = replay_snapshot(path, device_memory_bytes=memory_bytes)
        assert replay.events > actions
        if replay.divergence is not None or replay.simulated != replay.recorded:
            different.append(f"{name}, {path.name}: {replay.divergence}")
        path.unlink()
    return different


@pytest.mark.parametrize("name", NAMES)
def test_random_lives_are_equal_at_every_event(
    built: standin.Standin, tmp_path: Path, name: str
) -> None:
    assert live(built, tmp_path, name, 4000, range(2)) == []


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_many_long_random_lives_are_equal_at_every_event(
    built: standin.Standin, tmp_path: Path, name: str
) -> None:
    count = int(os.environ.get("TIDEGAUGE_LIVES", "20"))  # 200 in all
    assert live(built, tmp_path, name, 20_000, range(100, 100 + count)) == []
