# SPDX-License-Identifier: BSD-3-Clause
"""`tidegauge replay`: output, files and exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from snapshots import MIB, deferred_frees, three_segments, write
from tidegauge.cli.common import parse_bytes, render_bytes
from tidegauge.cli.main import main


@pytest.fixture
def snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file in the current folder, so that the output does not depend on its path."""
    monkeypatch.chdir(tmp_path)
    return write(Path("three_segments.pickle"), three_segments()).name


Golden = Callable[[str, str], None]
Capture = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("replay", []),
        ("replay_counter", ["--tie", "counter"]),
        ("replay_other_settings", ["--alloc-conf", "expandable_segments:True"]),
        ("replay_json", ["--json"]),
    ],
)
def test_output_equals_the_golden_file(
    snapshot: str, name: str, arguments: list[str], golden: Golden, capsys: Capture
) -> None:
    assert main(["replay", snapshot, *arguments]) == 0
    output = capsys.readouterr()
    golden(f"{name}.txt", output.out)
    assert output.err == ""
    assert max(map(len, output.out.splitlines())) <= 80


def test_json_has_the_figures_of_both_runs(snapshot: str, capsys: Capture) -> None:
    assert main(["replay", snapshot, "--json"]) == 0
    (device,) = json.loads(capsys.readouterr().out)["devices"]
    assert (device["device"], device["events"]) == (0, 11)
    for run in ("recorded", "simulated"):
        assert device[run]["peak_reserved_bytes"] == 150 * MIB
        assert device[run]["peak_active_bytes"] == 70 * MIB
        assert device[run]["segment_events"] == 3


def test_divergence_is_reported(snapshot: str, golden: Golden, capsys: Capture) -> None:
    changed = three_segments()
    del changed["device_traces"][0][8:]  # the last segment remains, but no request explains it
    changed["segments"].pop()
    changed["device_traces"][0][4]["size"] = changed["segments"][1]["total_size"] = 60 * MIB
    changed["segments"][1]["blocks"][0]["size"] = 60 * MIB
    write(Path(snapshot), changed)
    assert main(["replay", snapshot]) == 0
    golden("replay_divergence.txt", capsys.readouterr().out)


def test_bounds_of_deferred_frees_are_printed(
    snapshot: str, golden: Golden, capsys: Capture
) -> None:
    write(Path("waits.pickle"), deferred_frees())
    assert main(["replay", "waits.pickle", "--deferred", "high"]) == 0
    golden("replay_deferred.txt", capsys.readouterr().out)


def test_too_small_device_exits_with_3(snapshot: str, capsys: Capture) -> None:
    assert main(["replay", snapshot, "--device-memory", "60MiB"]) == 3
    assert main(["replay", snapshot, "--device-memory", "200MiB"]) == 0
    assert capsys.readouterr().err == ""


def test_bad_files_exit_with_1(tmp_path: Path, snapshot: str, capsys: Capture) -> None:
    assert main(["replay", "nothing.pickle"]) == 1
    assert capsys.readouterr().err == "tidegauge: nothing.pickle: No such file or directory\n"
    Path("text.pickle").write_text("&!")
    assert main(["replay", "text.pickle"]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err == (
        "tidegauge: text.pickle: damaged, or another format: byte 0 is not a pickle opcode.\n"
    )
    assert main(["replay", str(tmp_path)]) == 1
    assert capsys.readouterr().err.endswith("Is a directory\n")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["unknown"],
        ["replay"],
        ["replay", "x", "--tie", "chance"],
        ["replay", "x", "--device-memory", "much"],
    ],
)
def test_wrong_usage_exits_with_2(arguments: list[str], capsys: Capture) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("tidegauge: ")
    assert output.err.endswith(" --help`)\n")
    assert output.err.count("\n") == 1


def test_settings_that_torch_rejects_exit_with_2(snapshot: str, capsys: Capture) -> None:
    assert main(["replay", snapshot, "--alloc-conf", "foo:1"]) == 2
    assert capsys.readouterr().err == (
        "tidegauge: allocator settings 'foo:1': Unrecognized key 'foo' in Accelerator allocator "
        "config.\n"
    )


def test_runs_as_a_module_and_stops_when_the_pipe_closes(snapshot: str) -> None:
    command = [sys.executable, "-m", "tidegauge", "replay", snapshot]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("three_segments.pickle, device 0: 11 events")
    # The reader closes the pipe before anything is written.
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 1


def test_help_names_the_commands(capsys: Capture) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    assert "replay" in capsys.readouterr().out


def test_sizes_are_parsed_and_formatted() -> None:
    for size_bytes, text in (
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (-1536, "-1.50 KiB"),
        (10 * MIB, "10.0 MiB"),
        (100 * MIB, "100 MiB"),
        (1023 * MIB + MIB // 2, "1.00 GiB"),
        (1 << 60, "1048576 TiB"),
    ):
        assert render_bytes(size_bytes) == text
    assert parse_bytes("40GiB") == 40 << 30
    assert parse_bytes("1.5 KiB") == 1536
    assert parse_bytes("77 B") == 77
