# SPDX-License-Identifier: BSD-3-Clause
"""`report --html` and `diff --html`: the written file. tests/browser tests its behaviour."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from pages import unpack
from sealing import edit_trace
from tidegauge import MemTracker
from tidegauge._util.formatting import render_bytes
from tidegauge.cli.main import main
from tidegauge.report import read_summary
from tidegauge.report.html import join_modules

Capture = pytest.CaptureFixture[str]
WEB = Path(__file__).parents[3] / "python/tidegauge/report/web"


def read_column(table: dict[str, Any], name: str, data: bytes, *, growing: bool) -> list[int]:
    offset, length = table["columns"][name]
    values, value, shift = [], 0, 0
    for byte in data[offset : offset + length]:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            values.append(value + (values[-1] if growing and values else 0))
            value = shift = 0
    assert len(values) == table["count"]
    return values


def test_live_pieces_at_the_peak_equal_the_ledger(traces: Path) -> None:
    for path in ("before.tide", "sharded.tide"):
        assert main(["report", path, "--html", "page.html", "-q", "--force"]) == 0
        header, data = unpack("page.html")
        (run,) = header["runs"]
        peaks = {peak.device: peak for peak in read_summary(path).peaks}
        assert {device["device"] for device in run["devices"]} >= set(peaks)
        for device in run["devices"]:
            peak = peaks[device["device"]]
            sequences = read_column(device["moments"], "sequence", data, growing=True)
            moment = sequences.index(peak.sequence)
            pieces = device["pieces"]
            first = read_column(pieces, "first", data, growing=True)
            length = read_column(pieces, "length", data, growing=False)
            size = read_column(pieces, "size", data, growing=False)
            category = read_column(pieces, "category", data, growing=False)
            found: dict[str, int] = {}
            for i in range(pieces["count"]):
                if first[i] <= moment < first[i] + length[i]:
                    name = header["categories"][category[i]]["name"]
                    found[name] = found.get(name, 0) + size[i]
            assert found == peak.categories


def test_page_is_self_contained_and_runs_only_its_own_script(traces: Path) -> None:
    assert main(["report", "before.tide", "--html", "page.html", "-q"]) == 0
    text = Path("page.html").read_text()
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert "http:" not in text
    assert "https:" not in text
    assert not re.findall(r'(?:src|href)="(?!data:,|#)', text)


def test_bundled_script_has_all_modules_and_no_imports() -> None:
    script = join_modules("main.js")
    assert not re.findall(r"^\s*(?:import|export)\b", script, re.MULTILINE)
    for path in WEB.glob("*.js"):
        assert f"const {path.name.replace('.', '_')} = (() => {{" in script, "no module imports it"


def test_names_appear_only_in_the_packed_data(traces: Path) -> None:
    name = '</script><script>alert("boo")</script>'
    with edit_trace("before.tide") as database:
        database.execute("UPDATE modules SET name = ?", (name,))
    path = "<b>&.tide"
    Path("before.tide").rename(path)
    assert main(["report", path, "--html", "page.html", "-q"]) == 0
    text = Path("page.html").read_text()
    assert "alert(" not in text
    assert "<title>&lt;b&gt;&amp;.tide - tidegauge</title>" in text
    header, _ = unpack("page.html")
    assert name in header["runs"][0]["modules"].values()


@pytest.mark.parametrize(
    "command", [["report", "before.tide"], ["diff", "before.tide", "after.tide"]]
)
def test_page_replaces_a_file_only_with_force(
    traces: Path, command: list[str], capsys: Capture
) -> None:
    Path("page.html").write_text("mine")
    assert main([*command, "--html", "page.html"]) == 1
    assert capsys.readouterr().err == (
        "tidegauge: page.html exists; choose another name, or replace it with --force\n"
    )
    assert Path("page.html").read_text() == "mine"
    assert main([*command, "--html", "page.html", "--force"]) == 0
    output = capsys.readouterr()
    assert output.err == "tidegauge: wrote page.html\n"
    assert "Peak on cpu" in output.out  # the text is printed, too
    assert Path("page.html").read_text().startswith("<!doctype html>")


def test_page_in_a_missing_folder_is_reported_in_one_line(traces: Path, capsys: Capture) -> None:
    assert main(["report", "before.tide", "--html", "missing/page.html"]) == 1
    assert capsys.readouterr().err == "tidegauge: missing/page.html: No such file or directory\n"


def test_page_and_another_output_are_written_together(traces: Path, capsys: Capture) -> None:
    assert main(["report", "before.tide", "--html", "page.html", "--json", "-q"]) == 0
    assert json.loads(capsys.readouterr().out)["peaks"]
    assert main(["report", "before.tide", "--html", "other.html", "-o", "report.txt", "-q"]) == 0
    assert "Peak on cpu" in Path("report.txt").read_text()
    assert Path("page.html").exists()
    assert Path("other.html").exists()


def test_several_files_need_html_or_another_command(traces: Path, capsys: Capture) -> None:
    ranks = ["run.rank1.tide", "run.rank0.tide"]
    assert main(["report", *ranks]) == 2
    assert "to compare ranks use `tidegauge merge`" in capsys.readouterr().err
    assert main(["report", "before.tide", "after.tide", "--html", "page.html"]) == 2
    assert "are both from rank 0" in capsys.readouterr().err
    assert not Path("page.html").exists()
    assert main(["report", *ranks, "--html", "page.html", "-q"]) == 0
    header, _ = unpack("page.html")
    assert [run["label"] for run in header["runs"]] == ["rank 0", "rank 1"]
    assert header["ranks"]["devices"][0]["total"]["worst_rank"] == 1


def test_bad_file_makes_no_page(traces: Path, capsys: Capture) -> None:
    Path("bad.tide").write_bytes(Path("before.tide").read_bytes()[:20_000])
    assert main(["report", "bad.tide", "--html", "page.html"]) == 1
    output = capsys.readouterr()
    assert "is damaged, cut off, or was changed" in output.err
    assert output.err.count("\n") == 1
    assert not Path("page.html").exists()


def test_run_without_tensors_makes_a_page(traces: Path) -> None:
    with MemTracker(record="empty.tide"):
        pass
    assert main(["report", "empty.tide", "--html", "page.html", "-q"]) == 0
    header, _ = unpack("page.html")
    assert header["runs"][0]["devices"] == []
    assert header["runs"][0]["memory"] is None


def test_limits_apply_with_a_page(traces: Path) -> None:
    command = ["diff", "before.tide", "after.tide", "--fail-above", "1%", "--html", "page.html"]
    assert main([*command, "-q"]) == 3
    header, _ = unpack("page.html")
    assert header["comparison"]["devices"][0]["total"]["name"] == "total"


def test_page_formats_bytes_like_the_terminal() -> None:
    node = shutil.which("node")
    if node is None:
        if os.environ.get("CI") == "true":
            pytest.fail("found no node")
        pytest.skip("found no node; run: apt-get install nodejs")
    rng = random.Random(8)
    sizes = [*range(3000), *(round(2 ** rng.uniform(0, 52)) for _ in range(3000))]
    sizes += [eighth * 1024**power // 8 for eighth in range(8, 8192, 7) for power in (1, 2, 3)]
    sizes += [-size for size in sizes]
    script = (
        f"const {{ formatBytes }} = await import('{WEB / 'format.js'}');"
        f"console.log(JSON.stringify({sizes}.map(formatBytes)));"
    )
    done = subprocess.run(
        [node, "--input-type=module", "-"], input=script, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [render_bytes(size) for size in sizes]
