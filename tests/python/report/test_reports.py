# SPDX-License-Identifier: BSD-3-Clause
"""`tidegauge report`, `diff`, `merge` and `info`: output, files and exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import tidegauge
import torch
from sealing import edit_trace
from tidegauge import MemTracker
from tidegauge.cli.main import COMMANDS, main
from tidegauge.report import read_summary
from traces import Net, normalise

Golden = Callable[[str, str], None]
Capture = pytest.CaptureFixture[str]

COMMANDS_THAT_PRINT = [
    ("report", ["report", "before.tide"]),
    ("report_top", ["report", "before.tide", "--top", "3"]),
    ("report_json", ["report", "before.tide", "--json", "--top", "2"]),
    ("report_sharded", ["report", "sharded.tide", "--top", "4"]),
    ("report_sharded_json", ["report", "sharded.tide", "--json", "--top", "1"]),
    ("diff", ["diff", "before.tide", "after.tide"]),
    ("diff_same", ["diff", "before.tide", "before.tide"]),
    ("diff_json", ["diff", "before.tide", "after.tide", "--json", "--top", "2"]),
    ("merge", ["merge", "run.rank0.tide", "run.rank1.tide"]),
    ("merge_missing", ["merge", "run.rank1.tide"]),
    ("merge_json", ["merge", "run.rank1.tide", "run.rank0.tide", "--json"]),
    ("info", ["info", "before.tide"]),
    ("info_rank", ["info", "run.rank1.tide"]),
    ("info_json", ["info", "before.tide", "--json"]),
    ("devices", ["devices"]),
    ("devices_json", ["devices", "--json"]),
    ("devices_sources", ["devices", "-v"]),
]


@pytest.mark.parametrize(("name", "arguments"), COMMANDS_THAT_PRINT)
def test_output_equals_the_golden_file(
    traces: Path, name: str, arguments: list[str], golden: Golden, capsys: Capture
) -> None:
    assert main(arguments) == 0
    output = capsys.readouterr()
    golden(f"{name}.txt", normalise(output.out))
    assert output.err == ""
    if "--json" in arguments:
        json.loads(output.out)
    else:
        assert max(map(len, output.out.splitlines())) <= 80


def test_summary_equals_the_closed_form_of_the_model(traces: Path) -> None:
    """Closed forms: parameters, gradients and momentum are equal; the lists add up."""
    summary = read_summary("before.tide")
    (peak,) = summary.peaks
    parameter_bytes = 4 * sum(p.numel() for p in Net(256).parameters())
    assert peak.categories["Parameter"] == parameter_bytes
    assert peak.categories["Optstate"] == parameter_bytes
    assert sum(peak.categories.values()) == peak.total_bytes
    assert sum(group.size_bytes for group in peak.tensors) == peak.total_bytes
    assert sum(module.own_bytes for module in peak.modules) == peak.total_bytes
    block = next(module for module in peak.modules if module.name == "Net.blocks.0")
    assert block.categories["Parameter"] == 4 * (64 * 256 + 256 + 256 * 64 + 64)
    assert peak.saved_bytes == peak.categories["Saved Activation"]
    assert (summary.step_count, summary.optimizer_step_count) == (3, 3)
    assert max(step.total_bytes for step in summary.steps) == peak.total_bytes
    assert summary.health.is_good


def test_summary_equals_the_closed_form_of_the_units(traces: Path) -> None:
    """Closed forms: a quarter of each parameter, whole parameters, and bytes without a unit."""
    (peak,) = read_summary("sharded.tide").peaks
    units = {unit.name: unit for unit in peak.units}
    assert units.keys() == {"(root)", "blocks.0", "blocks.1"}
    block_bytes = 4 * (64 * 256 + 256 + 256 * 64 + 64)
    head_bytes = 4 * (64 * 8 + 8)
    for name, whole_bytes in [("(root)", head_bytes), ("blocks.0", block_bytes)]:
        unit = units[name]
        assert unit.categories["Sharded Param"] == whole_bytes // 4
        assert unit.size_bytes == sum(unit.categories.values())
        assert unit.peak_share == unit.size_bytes / peak.total_bytes
    # The peak is in the backward of the last block: its gradients exist, and the previous block is
    # prefetched.
    assert units["blocks.1"].categories["Unsharded Param"] == block_bytes
    assert units["blocks.1"].categories["Unsharded Grad"] == block_bytes
    assert units["blocks.0"].categories["All Gather"] == block_bytes
    # Blocks are gathered in forward and backward; the root stays whole in between.
    assert [units[name].gather_count for name in ("(root)", "blocks.0", "blocks.1")] == [2, 4, 4]
    assert {unit.reduce_count for unit in peak.units} == {2}
    fsdp = ("Sharded", "Unsharded", "All Gather", "Reduce Scatter")
    assert sum(unit.size_bytes for unit in peak.units) == sum(
        size for category, size in peak.categories.items() if category.startswith(fsdp)
    )


def test_summary_equals_the_live_tracker(tmp_path: Path) -> None:
    path = tmp_path / "live.tide"
    tracker = MemTracker(record=path)
    with tracker:
        model = Net(128)
        model(torch.randn(8, 64)).sum().backward()
    assert tracker._recorder is not None
    tracker._recorder.close()
    live = {str(device): split for device, split in tracker._native.splits(True).items()}
    assert {peak.device: peak.categories for peak in read_summary(path).peaks} == live


def test_exceeded_limit_exits_with_3(traces: Path, capsys: Capture) -> None:
    diff = ["diff", "before.tide", "after.tide"]
    assert main([*diff, "--fail-above", "1%"]) == 3
    output = capsys.readouterr()
    assert "tidegauge: limit exceeded: cpu: total grew by +" in output.err
    assert "above the limit" not in output.out
    assert main([*diff, "--fail-above", "90%"]) == 0
    assert main([*diff, "--fail-above", "10MiB"]) == 0
    assert main([*diff, "--fail-above", "0"]) == 3
    assert main(["diff", "after.tide", "before.tide", "--fail-above", "0"]) == 0
    capsys.readouterr()
    assert main([*diff, "--fail-above", "1%", "--json", "-q"]) == 3
    output = capsys.readouterr()
    (breach,) = json.loads(output.out)["breaches"]
    assert (breach["device"], breach["what"], breach["limit"]) == ("cpu", "total", "1%")
    assert output.err == ""


@pytest.mark.parametrize(
    ("budget", "code"),
    [
        ('[peak]\ntotal = "1GiB"\n', 0),
        ('[peak]\ntotal = "100KiB"\n', 3),
        ('[peak]\n"Saved Activation" = "1KiB"\n', 3),
        ('[peak]\n"All Gather" = "0"\n', 0),
        ('[growth]\ntotal = "50%"\nParameter = "1MiB"\n', 0),
        ('[growth]\nParameter = "1%"\n', 3),
        ('[modules]\n"Net.blocks" = "1GiB"\n"Nobody" = 1\n', 0),
        ('[modules]\n"Net.blocks" = 1024\n', 3),
    ],
)
def test_budget_decides_the_exit_code(traces: Path, budget: str, code: int) -> None:
    Path("budget.toml").write_text(budget)
    assert main(["diff", "before.tide", "after.tide", "--budget", "budget.toml"]) == code


@pytest.mark.parametrize(
    ("budget", "complaint"),
    [
        ("", "has no limits"),
        ("[peak", "is not valid TOML"),
        ("[speed]\ntotal = 1\n", "unknown table [speed]"),
        ('[peak]\nWeights = "1GiB"\n', "unknown category 'Weights'"),
        ('[peak]\ntotal = "1%"\n', "invalid limit '1%'"),
        ('[growth]\ntotal = "much"\n', "invalid limit 'much'"),
        ("peak = 1\n", "peak is not a table"),
    ],
)
def test_bad_budget_is_wrong_usage(
    traces: Path, budget: str, complaint: str, capsys: Capture
) -> None:
    Path("budget.toml").write_text(budget)
    assert main(["diff", "before.tide", "after.tide", "--budget", "budget.toml"]) == 2
    output = capsys.readouterr()
    assert complaint in output.err
    assert output.err.startswith("tidegauge: budget.toml")
    assert output.err.count("\n") == 1
    assert output.out == ""


def test_output_goes_to_a_file_that_is_not_overwritten(traces: Path, capsys: Capture) -> None:
    command = ["report", "before.tide", "-o", "report.txt"]
    assert main(command) == 0
    assert capsys.readouterr() == ("", "tidegauge: wrote report.txt\n")
    text = Path("report.txt").read_text()
    assert text.startswith("before.tide: 3 steps")
    assert main([*command, "--json"]) == 1
    assert capsys.readouterr().err == (
        "tidegauge: report.txt exists; choose another name, or replace it with --force\n"
    )
    assert Path("report.txt").read_text() == text
    assert main([*command, "--json", "--force", "-q"]) == 0
    assert capsys.readouterr() == ("", "")
    assert json.loads(Path("report.txt").read_text())["step_count"] == 3


def test_meta_tensors_have_no_memory_and_break_no_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, size in (("small", 10), ("large", 1000)):
        with MemTracker(record=f"{name}.tide"):
            kept = torch.empty(size, device="meta"), torch.empty(10)
            del kept
        with MemTracker(record=f"{name}_meta.tide"):
            torch.empty(size, device="meta")
    for command in (["report", "large.tide"], ["info", "large.tide"], ["merge", "large.tide"]):
        assert main([*command, "-q"]) == 0
        assert "on meta (no real memory)" in capsys.readouterr().out
    assert main(["diff", "small.tide", "large.tide", "--fail-above", "0", "-q"]) == 0
    assert "Peak on meta (no real memory)" in capsys.readouterr().out
    # If all tensors are on meta, the limit applies to meta.
    assert main(["diff", "small_meta.tide", "large_meta.tide", "--fail-above", "0", "-q"]) == 3


def test_two_files_of_one_rank_are_wrong_usage(traces: Path, capsys: Capture) -> None:
    assert main(["merge", "before.tide", "after.tide"]) == 2
    assert "are both from rank 0" in capsys.readouterr().err


def test_missing_ranks_of_a_large_run_are_abbreviated(traces: Path, capsys: Capture) -> None:
    with edit_trace("run.rank1.tide") as database:
        database.execute("UPDATE run SET value = ? WHERE key = 'world_size'", (2**63 - 1,))
    assert main(["merge", "run.rank1.tide"]) == 0
    output = capsys.readouterr().out
    assert "Missing ranks (of 1048576): 0, 2, 3, " in output
    assert output.endswith("and 1,048,559 more\n")


BAD_FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda path: None, "No such file or directory; check the path"),
    "folder": (lambda path: path.mkdir(), "is a folder; pass a trace file"),
    "empty": (lambda path: path.touch(), "is empty; record again"),
    "foreign": (lambda path: path.write_text("no trace" * 1000), "is not a tidegauge trace"),
    "truncated": (
        lambda path: path.write_bytes(Path("before.tide").read_bytes()[:20_000]),
        "is damaged, cut off, or was changed",
    ),
    "newer": (
        lambda path: path.write_bytes(_with_version(Path("before.tide").read_bytes(), 3000)),
        "Install a newer tidegauge, or record again",
    ),
}


def _with_version(file: bytes, version: int) -> bytes:
    return file[:60] + version.to_bytes(4, "big") + file[64:]  # user_version of SQLite's header


@pytest.mark.parametrize("kind", BAD_FILES)
@pytest.mark.parametrize(
    "command",
    [
        ["report", "FILE"],
        ["diff", "before.tide", "FILE"],
        ["merge", "FILE"],
        ["info", "FILE"],
        ["export", "FILE", "--to", "json"],
    ],
    ids=lambda command: command[0],
)
def test_bad_file_gives_one_line_that_says_what_to_do(
    traces: Path, command: list[str], kind: str, capsys: Capture
) -> None:
    make, complaint = BAD_FILES[kind]
    make(Path("bad.tide"))
    assert main([word.replace("FILE", "bad.tide") for word in command]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("tidegauge: ")
    assert "bad.tide" in output.err
    assert complaint in output.err
    assert output.err.count("\n") == 1


def test_killed_run_is_reported(traces: Path, capsys: Capture) -> None:
    with edit_trace("before.tide") as database:
        database.execute("DELETE FROM run WHERE key IN ('ended', 'lost_events')")
    assert main(["info", "before.tide"]) == 0
    assert "The run was killed or is still running" in capsys.readouterr().out
    assert main(["report", "before.tide"]) == 0
    output = capsys.readouterr()
    assert "! The run was killed or is still running" in output.out
    assert output.err.startswith("tidegauge: before.tide: The run was killed or is still running")
    assert main(["report", "before.tide", "-q"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["report"],
        ["report", "a.tide", "--top", "many"],
        ["diff", "a.tide"],
        ["diff", "a.tide", "b.tide", "--fail-above", "much"],
        ["merge"],
        ["info", "a.tide", "-q", "-v"],
        ["export", "a.tide"],
        ["export", "a.tide", "--to", "paper"],
        ["sail"],
    ],
    ids=" ".join,
)
def test_wrong_usage_exits_with_2(arguments: list[str], capsys: Capture) -> None:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("arguments", [["info"], ["info", "a.tide", "--self"]], ids=" ".join)
def test_info_takes_a_trace_or_self(arguments: list[str], capsys: Capture) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err == "tidegauge: expected a trace or --self\n"


def test_installation_describes_itself(capsys: Capture) -> None:
    assert main(["info", "--self", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["torch"] == torch.__version__
    assert torch.__version__.startswith(f"{facts['built_for_torch']}.")
    assert (facts["version"], facts["problem"]) == (tidegauge.__version__, None)


@pytest.mark.parametrize("command", [module.NAME for module in COMMANDS])
def test_help_has_examples(
    command: str, golden: Golden, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as end:
        main([command, "--help"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    assert f"\n  tidegauge {command} " in text
    assert max(map(len, text.splitlines())) <= 80
    golden(f"help_{command}.txt", text)


def test_output_has_no_colours_and_no_progress_without_a_terminal(traces: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tidegauge", "report", "before.tide", "-v"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "\x1b" not in done.stdout + done.stderr
    assert "\r" not in done.stderr
    assert done.stderr.startswith("tidegauge: before.tide: read ")
