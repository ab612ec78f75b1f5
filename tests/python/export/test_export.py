# SPDX-License-Identifier: BSD-3-Clause
"""`tidegauge export`: tables, stacks, output files, and refused arguments."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from sealing import edit_trace
from tidegauge import MemTracker, _core
from tidegauge.cli.main import main
from tidegauge.export import TABLES, to_csv, to_flamegraph, to_json
from tidegauge.report import read_summary
from traces import normalise

Golden = Callable[[str, str], None]
Capture = pytest.CaptureFixture[str]


def read_csv(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("export_modules", ["before.tide", "--to", "csv", "--table", "modules"]),
        ("export_tensors", ["before.tide", "--to", "csv", "--table", "tensors"]),
        ("export_steps", ["before.tide", "--to", "csv", "--table", "steps"]),
        ("export_json", ["before.tide", "--to", "json"]),
        ("export_flamegraph", ["before.tide", "--to", "flamegraph"]),
        (
            "export_flamegraph_ranks",
            ["run.rank1.tide", "run.rank0.tide", "--to", "flamegraph", "--at", "step:2"],
        ),
    ],
)
def test_output_equals_the_golden_file(
    traces: Path, name: str, arguments: list[str], golden: Golden, capsys: Capture
) -> None:
    assert main(["export", *arguments]) == 0
    output = capsys.readouterr()
    golden(f"{name}.txt", normalise(output.out.replace("\r\n", "\n")))
    assert output.err == ""


def test_tables_add_up_to_the_peak(traces: Path) -> None:
    for trace in ("before.tide", "sharded.tide"):
        summary = read_summary(trace)
        (peak,) = summary.peaks
        tables = json.loads(to_json([summary]))
        assert tables.keys() == TABLES.keys()
        sums = {
            "peaks": "size_bytes",
            "modules": "own_bytes",
            "tensors": "size_bytes",
        }
        for name, column in sums.items():
            assert sum(row[column] for row in tables[name]) == peak.total_bytes
        assert sum(row["peak_share"] for row in tables["peaks"]) == pytest.approx(1)
        units = sum(unit.size_bytes for unit in peak.units)
        assert sum(row["size_bytes"] for row in tables["units"]) == units
        highest = [row for row in tables["steps"] if row["sequence"] == peak.sequence]
        assert sum(row["size_bytes"] for row in highest) == peak.total_bytes


@pytest.mark.parametrize("table", TABLES)
def test_csv_and_json_have_the_same_rows(traces: Path, table: str) -> None:
    summaries = [read_summary(f"run.rank{rank}.tide") for rank in (1, 0)]
    text = to_csv(summaries, table)
    assert text.startswith("rank,")
    assert text.endswith("\r\n")
    rows = json.loads(to_json(summaries))[table]
    assert read_csv(text) == [{key: str(value) for key, value in row.items()} for row in rows]
    assert [row["rank"] for row in rows] == sorted(row["rank"] for row in rows)
    if table != "units":
        assert {row["rank"] for row in rows} == {0, 1}


def test_csv_folder_has_all_tables_and_is_not_overwritten(traces: Path, capsys: Capture) -> None:
    command = ["export", "before.tide", "--to", "csv", "-o", "tables"]
    assert main(command) == 0
    assert {path.name for path in Path("tables").iterdir()} == {f"{name}.csv" for name in TABLES}
    assert Path("tables/units.csv").read_text().splitlines() == [
        "rank,device,unit,size_bytes,peak_share,gather_count,reduce_count,longest_whole_ns"
    ]
    Path("tables/peaks.csv").write_text("mine")
    capsys.readouterr()
    assert main(command) == 1
    assert "tables/peaks.csv exists" in capsys.readouterr().err
    assert Path("tables/peaks.csv").read_text() == "mine"
    assert main([*command, "--force"]) == 0
    assert Path("tables/peaks.csv").read_text() != "mine"


@pytest.mark.parametrize("name", ["=HYPERLINK(1)", "+1", "-1", "@x", "\tx", "\rx"])
def test_names_that_look_like_formulas_are_escaped_in_csv(traces: Path, name: str) -> None:
    with edit_trace("before.tide") as database:
        database.execute("UPDATE modules SET name = ?", (name,))
    summary = read_summary("before.tide")
    names = {row["module"] for row in read_csv(to_csv([summary], "tensors"))}
    assert f"'{name}" in names
    assert name not in names
    assert name in {row["module"] for row in json.loads(to_json([summary]))["tensors"]}


def test_hostile_names_are_quoted(traces: Path) -> None:
    name = 'a"b,c\nd;e\u202e \u2028' + "x" * 40_000
    with edit_trace("before.tide") as database:
        database.execute("UPDATE modules SET name = ?", (name,))
    summary = read_summary("before.tide")
    rows = read_csv(to_csv([summary], "tensors"))
    assert name in {row["module"] for row in rows}
    lines = to_flamegraph([summary]).splitlines()
    assert all(re.fullmatch(r"[^;]+(;[^;]+){2,} \d+", line) for line in lines)
    assert sum(int(line.rpartition(" ")[2]) for line in lines) == summary.peak_bytes


@pytest.mark.parametrize("trace", ["before.tide", "sharded.tide"])
def test_stacks_add_up_to_the_bytes_of_the_moment(traces: Path, trace: str) -> None:
    summary = read_summary(trace)

    def total(at: str) -> int:
        lines = to_flamegraph([summary], at=at).splitlines()
        return sum(int(line.rpartition(" ")[2]) for line in lines)

    (peak,) = summary.peaks
    assert total("peak") == peak.total_bytes
    assert to_flamegraph([summary], at=str(peak.sequence)) == to_flamegraph([summary])
    assert total("end") == sum(summary.end.get("cpu", {}).values())
    for step in summary.steps:
        assert total(f"step:{step.step}") == step.total_bytes
    for sequence in range(1, summary.event_count, 17):
        now = _core.Reader(trace).replay(sequence).fine_current()
        assert total(str(sequence)) == sum(sum(split.values()) for *_, split in now)


def test_stacks_have_the_categories_of_the_moment(traces: Path) -> None:
    summary = read_summary("before.tide")
    step = summary.steps[1]
    split: dict[str, int] = {}
    for line in to_flamegraph([summary], at="step:2").splitlines():
        stack, _, size = line.rpartition(" ")
        category = stack.rpartition(";")[2]
        split[category] = split.get(category, 0) + int(size)
    assert split == step.categories


def test_empty_run_can_be_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with MemTracker(record="empty.tide"):
        pass
    for to in ("memory-viz", "perfetto", "csv", "json", "flamegraph"):
        assert main(["export", "empty.tide", "--to", to, "-o", f"out.{to}", "-q"]) == 0
    assert Path("out.flamegraph").read_text() == ""


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--to", "csv"], 2, "csv needs -o FOLDER for all tables"),
        (["--to", "perfetto", "--table", "peaks"], 2, "--table requires --to csv"),
        (["--to", "csv", "--at", "end"], 2, "--at requires --to flamegraph"),
        (["--to", "json", "--alloc-conf", ""], 2, "--alloc-conf requires --to memory-viz"),
        (["--to", "flamegraph", "--at", "noon"], 2, "invalid moment 'noon'"),
        (["--to", "flamegraph", "--at", "step:9"], 2, "has no moment 'step:9'; it has"),
        (["--to", "flamegraph", "--at", "0"], 2, "no moment '0'"),
        (["--to", "memory-viz", "--alloc-conf", "moon:1"], 2, "moon"),
        (["--to", "memory-viz", "--traced-device", "cuda:3"], 2, "it used: cpu"),
        (["after.tide", "--to", "perfetto"], 2, "are both from rank 0"),
        (["--to", "json", "-o", "missing/out.json"], 1, "missing/out.json: No such file"),
    ],
)
def test_error_is_reported_in_one_line(
    traces: Path, arguments: list[str], code: int, message: str, capsys: Capture
) -> None:
    assert main(["export", "before.tide", *arguments]) == code
    output = capsys.readouterr()
    assert output.out == ""
    assert message in output.err
    assert output.err.count("\n") == 1
    assert not [path for path in Path().iterdir() if path.suffix == ".part"]


@pytest.mark.parametrize("to", ["memory-viz", "perfetto", "json", "flamegraph"])
def test_file_is_written_completely_or_not_at_all(traces: Path, to: str, capsys: Capture) -> None:
    Path("out").write_text("mine")
    command = ["export", "before.tide", "--to", to, "-o", "out"]
    assert main(command) == 1
    assert "out exists; choose another name, or replace it with --force" in capsys.readouterr().err
    assert Path("out").read_text() == "mine"
    assert main([*command, "--force"]) == 0
    assert capsys.readouterr().err == "tidegauge: wrote out\n"
    assert Path("out").read_bytes()[:4] != b"mine"
    assert main([*command[:-1], "/dev/null", "--force", "-q"]) == 0
    assert Path("/dev/null").is_char_device()


def test_interrupted_export_leaves_no_file(
    traces: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def interrupt(*args: object) -> None:
        args[-2](b"half")  # type: ignore[operator]
        raise KeyboardInterrupt

    monkeypatch.setattr("tidegauge._core.write_perfetto", interrupt)
    assert main(["export", "before.tide", "--to", "perfetto", "-o", "out.json"]) == 130
    assert not list(Path().glob("out.json*"))


def test_device_can_be_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Meta tensors have no memory, so they are exported only on request."""
    monkeypatch.chdir(tmp_path)
    with MemTracker(record="two.tide"):
        real, meta = torch.empty(10), torch.empty(1000, device="meta")
        del real, meta
    for arguments, size in (([], 40), (["--traced-device", "meta"], 4000)):
        command = ["export", "two.tide", "--to", "memory-viz", *arguments, "-o", "out.json", "-q"]
        assert main([*command, "--force"]) == 0
        events = json.loads(Path("out.json").read_text())["device_traces"][0]
        assert [e["size"] for e in events if e["action"] == "alloc"] == [size]
