# SPDX-License-Identifier: BSD-3-Clause
"""Compares `tidegauge report` with the version in which each section read the trace again.

The old figures were measured once, at commit 3b8cf9c (BASELINE below says where). To make a bar
mean the same on another machine, each side is divided by the time of a fixed piece of work that was
measured on the same machine in the same minute. To print the figures of the installed version, run
`python benchmarks/reports.py build/release/record_steps`.
"""

from __future__ import annotations

import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path

EVENTS = 10_000_000
UNITS = 32
ROUNDS = 3
COMMANDS = {"report": [], "report --html": ["--html", "page.html", "--force"]}
BARS = {"report": 1.6, "report --html": 2.5}
# CPU seconds, user and system, of commit 3b8cf9c: medians of three rounds that took turns with the
# version that read traces once, on two loaded cores of an AMD EPYC virtual machine, with torch
# 2.13.0+cpu. That version took 3.37 s and 4.93 s there.
BASELINE = {"report": 6.08, "report --html": 12.32, "fixed work": 1.074}


def measure_reports(record_steps: Path) -> list[tuple[str, float, float]]:
    """(name, how many times faster than the baseline, bar) of each command."""
    seconds = measure_seconds(record_steps)
    scale = BASELINE["fixed work"] / seconds["fixed work"]
    return [
        (
            f"CPU time of `{name}`, 10 million events of a sharded run: times less than "
            f"{BASELINE[name]} s before traces were read once (now {seconds[name]:.2f} s)",
            BASELINE[name] / (seconds[name] * scale),
            BARS[name],
        )
        for name in COMMANDS
    ]


def measure_seconds(record_steps: Path) -> dict[str, float]:
    """Median CPU seconds of each command, and of the fixed work."""
    times: dict[str, list[float]] = {name: [] for name in (*COMMANDS, "fixed work")}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [record_steps.absolute(), "run.tide", str(EVENTS), str(UNITS)], cwd=folder, check=True
        )
        for _ in range(ROUNDS):
            times["fixed work"].append(_time_fixed_work())
            for name, options in COMMANDS.items():
                times[name].append(_time_command(["report", "run.tide", "-q", *options], folder))
    return {name: statistics.median(each) for name, each in times.items()}


def _time_command(arguments: list[str], folder: str) -> float:
    command = [sys.executable, "-m", "tidegauge", *arguments]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, env=os.environ)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _time_fixed_work() -> float:
    """About a second of work that does not use tidegauge."""
    data = random.Random(1).randbytes(1 << 20) * 2 + bytes(range(256)) * (1 << 15)
    begin = time.process_time()
    for _ in range(16):
        zlib.compress(data, 6)
    return time.process_time() - begin


if __name__ == "__main__":
    print(measure_seconds(Path(sys.argv[1])))
