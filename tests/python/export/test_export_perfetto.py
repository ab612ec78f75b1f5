# SPDX-License-Identifier: BSD-3-Clause
"""`tidegauge export --to perfetto`: counters equal the ledger, slices nest, times ascend."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from tidegauge import MemTracker
from tidegauge.cli.main import main
from tidegauge.report import read_summary
from torch import nn
from torch.utils.checkpoint import checkpoint
from traces import FACTS, record_training

Event = dict[str, Any]


def export(*paths: str) -> list[Event]:
    assert main(["export", *paths, "--to", "perfetto", "-o", "out.json", "-q", "--force"]) == 0
    events: list[Event] = json.loads(Path("out.json").read_text())["traceEvents"]
    return events


def check_structure(events: list[Event]) -> None:
    """Checks that times never decrease in a process, and that slices nest in each thread."""
    now: dict[int, float] = {}
    open_: dict[tuple[int, int], int] = {}
    for event in events:
        assert event["ts"] >= now.get(event["pid"], 0.0)
        now[event["pid"]] = event["ts"]
        thread = event["pid"], event["tid"]
        if event["ph"] in "BE":
            open_[thread] = open_.get(thread, 0) + (1 if event["ph"] == "B" else -1)
            assert open_[thread] >= 0
    assert not any(open_.values())


def read_counters(events: list[Event], process: int = 0) -> dict[str, list[int]]:
    counters: dict[str, list[int]] = {}
    for event in events:
        if event["ph"] == "C" and event["pid"] == process:
            counters.setdefault(event["name"], []).append(event["args"]["bytes"])
    return counters


def at_highest(events: list[Event], device: str = "cpu") -> dict[str, int]:
    """Bytes by category at the first highest total of a device."""
    highest = max(read_counters(events)[f"{device}: total"])
    now: dict[str, int] = {}
    for event in events:
        if event["ph"] == "C":
            now[event["name"].removeprefix(f"{device}: ")] = event["args"]["bytes"]
            if now.get("total") == highest:
                break
    return {name: size for name, size in now.items() if size and name != "total"}


@pytest.mark.parametrize("trace", ["before.tide", "sharded.tide"])
def test_counters_at_the_peak_equal_the_ledger(traces: Path, trace: str) -> None:
    events = export(trace)
    check_structure(events)
    (peak,) = read_summary(trace).peaks
    counters = read_counters(events)
    assert max(counters["cpu: total"]) == peak.total_bytes
    assert at_highest(events) == peak.categories
    end = read_summary(trace).end.get("cpu", {})
    last = {name.removeprefix("cpu: "): sizes[-1] for name, sizes in counters.items()}
    assert {name: size for name, size in last.items() if size} == (
        {**end, "total": sum(end.values())} if end else {}
    )
    assert min(min(sizes) for sizes in counters.values()) == 0


def test_slices_are_module_calls(traces: Path) -> None:
    events = export("before.tide")
    begun = Counter(event["name"] for event in events if event["ph"] == "B")
    for name in ("Net", "Net.blocks.0", "Net.blocks.1.2", "Net.head"):
        assert begun[name] == 3
        assert begun[f"{name} backward"] == 3
    assert begun["optimizer step"] == 3
    steps = [event["name"] for event in events if event["ph"] == "i"]
    assert steps == ["step 1", "step 2", "step 3"]
    # A call is inside its caller.
    stack: list[str] = []
    for event in events:
        if event["ph"] == "B":
            stack.append(event["name"])
            if event["name"] == "Net.blocks.0.2":
                assert stack == ["Net", "Net.blocks.0", "Net.blocks.0.2"]
        elif event["ph"] == "E":
            stack.pop()


def test_recomputed_calls_are_slices_within_backward(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with MemTracker(record="checkpointed.tide"):
        net = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
        checkpoint(net, torch.ones(4, 8, requires_grad=True), use_reentrant=False).sum().backward()
    events = export("checkpointed.tide")
    check_structure(events)
    assert "Sequential recompute" in {event.get("name") for event in events if event["ph"] == "B"}


def test_ranks_are_processes_with_a_common_clock(traces: Path) -> None:
    events = export("run.rank1.tide", "run.rank0.tide")
    check_structure(events)
    names = {e["pid"]: e["args"]["name"] for e in events if e.get("name") == "process_name"}
    assert names == {0: "rank 0: run.rank0.tide", 1: "rank 1: run.rank1.tide"}
    for rank in (0, 1):
        (peak,) = read_summary(f"run.rank{rank}.tide").peaks
        assert max(read_counters(events, rank)["cpu: total"]) == peak.total_bytes
    # Rank 1 was recorded after rank 0, by the same clock.
    first, second = ([e["ts"] for e in events if e["pid"] == rank] for rank in (0, 1))
    assert max(first) < min(t for t in second if t)


def test_ranks_of_two_hosts_are_aligned_by_the_time_of_day(tmp_path: Path) -> None:
    from tidegauge.export.clock import begin_ns

    summaries = []
    for rank, (host, second) in enumerate([("east", 10), ("east", 11), ("west", 13)]):
        facts = {"host": host, "started": f"2026-01-31T12:00:{second}Z", "rank": str(rank)}
        path = tmp_path / f"{rank}.tide"
        record_training(path, steps=1, **{**FACTS, **facts})
        summaries.append(read_summary(path))
    first = summaries[0].started_ns
    assert begin_ns(summaries[0], summaries) == first
    assert begin_ns(summaries[1], summaries) == first
    assert begin_ns(summaries[2], summaries) == summaries[2].started_ns - 3_000_000_000


@pytest.mark.long
def test_million_events_need_little_memory(tmp_path: Path) -> None:
    """The export writes while it reads, so it needs far less memory than the size of the file."""
    path = tmp_path / "long.tide"
    with MemTracker(record=path):
        x = torch.ones(16)
        for _ in range(500_000):
            x = x + 1
    script = (
        "import resource, sys\n"
        "from tidegauge.export import to_perfetto\n"
        "from tidegauge.report import read_summary\n"
        "summary = read_summary(sys.argv[1])\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "with open(sys.argv[2], 'wb') as file: to_perfetto([summary], file)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    output = tmp_path / "long.json"
    command = [sys.executable, "-c", script, str(path), str(output)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert output.stat().st_size > 100 << 20
    assert int(done.stdout) < 32 << 10  # KiB
