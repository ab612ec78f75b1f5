# SPDX-License-Identifier: BSD-3-Clause
"""`tidegauge export --to memory-viz`: torch's tools and our replay read the file and agree."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from sealing import edit_trace
from tidegauge import MemTracker
from tidegauge.allocator import replay_snapshot
from tidegauge.cli.main import main
from tidegauge.report import read_summary
from torch.cuda import _memory_viz

Snapshot = dict[str, Any]
MIB = 1 << 20
SETTINGS = ["", "expandable_segments:True", "max_split_size_mb:20"]


def export(*arguments: str, output: str = "out.pickle") -> Snapshot:
    assert main(["export", *arguments, "--to", "memory-viz", "-o", output, "-q", "--force"]) == 0
    data = Path(output).read_bytes()
    snapshot: Snapshot = json.loads(data) if output.endswith(".json") else pickle.loads(data)
    return snapshot


def find_peak(trace: list[dict[str, Any]]) -> dict[str, int]:
    """Requested bytes by category at the highest moment, added up as in the viewer's timeline."""
    alive: dict[int, dict[str, Any]] = {}
    total, highest, at_peak = 0, 0, {}
    for event in trace:
        if event["action"] == "alloc":
            assert event["addr"] not in alive
            alive[event["addr"]] = event
            total += event["size"]
        elif event["action"] == "free_completed":
            total -= alive.pop(event["addr"])["size"]
        if total > highest:
            highest, at_peak = total, dict(alive)
    split: dict[str, int] = {}
    for event in at_peak.values():
        split[event["category"]] = split.get(event["category"], 0) + event["size"]
    return split


def check_walks_back(snapshot: Snapshot, device: int) -> None:
    """Undoes each event from the final segments, as the viewer does; nothing must remain."""
    segments = {
        s["address"]: s["address"] + s["total_size"]
        for s in snapshot["segments"]
        if s["device"] == device
    }
    blocks = {
        b["address"]: b["requested_size"]
        for s in snapshot["segments"]
        if s["device"] == device
        for b in s["blocks"]
        if b["state"] == "active_allocated"
    }
    waiting: set[int] = set()
    for event in reversed(snapshot["device_traces"][device]):
        address, end = event["addr"], event["addr"] + event["size"]
        assert end < 1 << 53
        match event["action"]:
            case "free_completed":
                assert any(low <= address and end <= high for low, high in segments.items())
                assert address not in blocks
                blocks[address] = event["size"]
                waiting.add(address)
            case "free_requested":
                waiting.remove(address)
            case "alloc":
                assert address not in waiting
                assert blocks.pop(address) == event["size"]
            case "segment_alloc":
                assert segments.pop(address) == end
            case "segment_map":
                (low,) = [low for low, high in segments.items() if low <= address and end <= high]
                high = segments.pop(low)
                segments.update({a: b for a, b in ((low, address), (end, high)) if a < b})
            case action:
                raise AssertionError(action)
    assert not segments
    assert not blocks


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("trace", ["before.tide", "sharded.tide"])
def test_peak_by_category_equals_the_ledger(traces: Path, trace: str, settings: str) -> None:
    snapshot = export(trace, "--alloc-conf", settings)
    (peak,) = read_summary(trace).peaks
    assert find_peak(snapshot["device_traces"][0]) == peak.categories


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("trace", ["before.tide", "sharded.tide"])
def test_viewer_can_undo_all_events(traces: Path, trace: str, settings: str) -> None:
    check_walks_back(export(trace, "--alloc-conf", settings), 0)


@pytest.mark.parametrize("output", ["out.pickle", "out.json"])
@pytest.mark.parametrize("settings", SETTINGS)
def test_replay_agrees_at_every_event(traces: Path, settings: str, output: str) -> None:
    snapshot = export("sharded.tide", "--alloc-conf", settings, output=output)
    (replay,) = replay_snapshot(output)
    assert replay.is_consistent
    assert replay.divergence is None
    assert replay.recorded == replay.simulated
    assert replay.recorded_conf == settings
    assert replay.events == len(snapshot["device_traces"][0])
    reserved = sum(segment["total_size"] for segment in snapshot["segments"])
    assert replay.recorded.final_reserved_bytes == reserved
    # The difference is at most 512 B for each of at most 73 storages.
    requested = sum(find_peak(snapshot["device_traces"][0]).values())
    assert requested <= replay.recorded.peak_active_bytes < requested + 73 * 512


def test_pickle_and_json_are_equal(traces: Path) -> None:
    plain = json.loads(json.dumps(export("before.tide")))
    assert export("before.tide", output="out.json") == plain


def test_only_segments_have_the_category_unknown(traces: Path) -> None:
    events = export("before.tide")["device_traces"][0]
    assert {e["category"] for e in events if e["action"] == "segment_alloc"} == {"unknown"}
    categories = {e["category"] for e in events if e["action"] == "alloc"}
    assert {"Parameter", "Gradient", "Optstate", "Saved Activation"} <= categories
    assert "unknown" not in categories


def test_times_are_times_of_day_and_ascend(traces: Path) -> None:
    times = [event["time_us"] for event in export("before.tide")["device_traces"][0]]
    assert times == sorted(times)
    started_us = 1_769_860_800_000_000  # 2026-01-31T12:00:00Z, the start in the trace
    assert started_us <= times[0] <= times[-1] < started_us + 3600 * 1_000_000


def test_frames_describe_the_tensor_and_its_place(traces: Path) -> None:
    events = export("before.tide")["device_traces"][0]
    frames = [event["frames"] for event in events if event["action"] == "alloc"]
    weight = {"filename": "float32 [8, 64]", "line": 0, "name": "aten::empty.memory_format"}
    assert [
        weight,
        {"filename": "torch.nn.modules.linear.Linear", "line": 0, "name": "Net.head"},
    ] in frames


def test_frames_have_the_python_stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with MemTracker(record="stacks.tide", stacks="python"):
        torch.empty(1000)
    (event,) = [e for e in export("stacks.tide")["device_traces"][0] if e["action"] == "alloc"]
    innermost = event["frames"][1]
    assert innermost["filename"].endswith("test_export_memory_viz.py")
    assert innermost["name"] == "test_frames_have_the_python_stack"
    assert innermost["line"] > 100


def test_ranks_are_devices(traces: Path) -> None:
    snapshot = export("run.rank1.tide", "run.rank0.tide")
    assert len(snapshot["device_traces"]) == 2
    for rank, trace in enumerate(snapshot["device_traces"]):
        (peak,) = read_summary(f"run.rank{rank}.tide").peaks
        assert find_peak(trace) == peak.categories
        check_walks_back(snapshot, rank)
    assert [replay.device for replay in replay_snapshot("out.pickle")] == [0, 1]


def test_resizes_and_zero_bytes_follow_the_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Storages live at the end are in the segments; a resize counts as in the ledger."""
    monkeypatch.chdir(tmp_path)
    tracker = MemTracker(record="resized.tide")
    with tracker:
        grown = torch.empty(12 * MIB, dtype=torch.uint8)
        grown.untyped_storage().resize_(30 * MIB)
        empty = torch.empty(0)
        kept = torch.empty(3 * MIB, dtype=torch.uint8)
        grown.untyped_storage().resize_(0)
        live_bytes = sum(sum(sizes) for _, sizes in tracker._native.current())
    snapshot = export("resized.tide")
    assert sum(find_peak(snapshot["device_traces"][0]).values()) == 33 * MIB
    requested = sum(segment["requested_size"] for segment in snapshot["segments"])
    assert requested == live_bytes == 3 * MIB
    check_walks_back(snapshot, 0)
    del kept, empty


@pytest.mark.parametrize("settings", SETTINGS)
def test_torch_functions_read_the_snapshot(traces: Path, settings: str) -> None:
    snapshot = export("sharded.tide", "--alloc-conf", settings)
    text = lambda lines: lines  # noqa: E731
    allocated = sum(
        int(line.rpartition(" ")[2])
        for line in _memory_viz.memory(snapshot, format_flamegraph=text).splitlines()
        if ";active_allocated;" in line
    )
    # torch's tool adds the rest of a block to its requested bytes.
    assert allocated == sum(segment["allocated_size"] for segment in snapshot["segments"])
    assert _memory_viz.segments(snapshot, format_flamegraph=text)
    segments = snapshot["segments"]
    assert _memory_viz.compare(segments, segments, format_flamegraph=text) == ""
    assert _memory_viz.compare([], segments, format_flamegraph=text)
    assert "total_reserved" in _memory_viz.segsum(snapshot)
    assert " entries" in _memory_viz.trace(snapshot)
    assert "MemoryViz" in _memory_viz.trace_plot(snapshot)
    assert "MemoryViz" in _memory_viz.trace_plot(snapshot, filter_freed=True)
    assert "MemoryViz" in _memory_viz.segment_plot(snapshot)


@pytest.mark.parametrize("action", ["trace_plot", "segment_plot", "stats", "trace"])
def test_torch_command_reads_the_file(traces: Path, action: str) -> None:
    export("before.tide")
    output = ["-o", "page.html"] if action.endswith("plot") else []
    done = subprocess.run(
        [sys.executable, "-m", "torch.cuda._memory_viz", action, "out.pickle", *output],
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path("page.html").stat().st_size > 10_000 if output else "MiB" in done.stdout


def test_hostile_names_are_text(traces: Path) -> None:
    name = '<script>alert("1")</script>\n\u202e\x00 ' + "x" * 70_000
    with edit_trace("before.tide") as database:
        database.execute("UPDATE modules SET name = ?", (name,))
        database.execute("UPDATE ops SET name = CAST(x'ff22' AS TEXT) WHERE id % 2 = 0")
    for output in ("out.pickle", "out.json"):
        events = export("before.tide", output=output)["device_traces"][0]
        frames = [f["name"] for e in events if e["action"] == "alloc" for f in e["frames"]]
        assert any(frame.startswith('<script>alert("1")</script>\n') for frame in frames)
        assert '\ufffd"' in frames
        assert replay_snapshot(output)[0].divergence is None
