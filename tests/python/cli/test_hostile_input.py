# SPDX-License-Identifier: BSD-3-Clause
"""Bad input ends with one line and an exit code, never with a traceback, and in bounded time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from sealing import edit_trace
from tidegauge import _core
from tidegauge.cli import main as main_module
from tidegauge.cli.main import main

GOLDEN = Path(__file__).parents[2] / "golden"


def fail(arguments: list[str], capsys: pytest.CaptureFixture[str], code: int = 1) -> str:
    """Runs a command that must fail, and returns its only line."""
    assert main(arguments) == code
    output = capsys.readouterr()
    assert output.out == ""
    (line,) = output.err.splitlines()
    assert len(line) <= 500
    return line


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "run.tide"
    path.write_bytes((GOLDEN / "traces" / "format_1.2_plain.tide").read_bytes())
    return str(path)


@pytest.mark.parametrize(
    "content",
    [
        "[" * 100_000,
        "[peak]\ntotal = " + "[" * 100_000,
        "\x00",
        "[peak]\nx" + ".x" * 20_000 + " = 1",
    ],
)
def test_budget_that_is_no_budget(
    tmp_path: Path, trace: str, content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "budget.toml").write_text(content)
    fail(["diff", trace, trace, "--budget", str(tmp_path / "budget.toml")], capsys, 2)


def test_budget_without_an_end(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = fail(["diff", trace, trace, "--budget", "/dev/zero"], capsys, 2)
    assert "/dev/zero is not a regular file" in text


def test_pipe_as_a_snapshot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "snapshot.pickle")
    assert "is not a regular file" in fail(["replay", str(tmp_path / "snapshot.pickle")], capsys)


def test_pickle_that_hashes_for_ever(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(b"\x80\x04})" + b"2\x86" * 60 + b"Ns.")
    text = fail(["replay", str(path)], capsys)
    assert "uses a key that is neither a text nor a small number" in text


def test_setting_beyond_all_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "snapshot.json"
    path.write_text('{"segments": [], "device_traces": [[]]}')
    settings = "expandable_segments:True,large_segment_size_mb:8796093022207"
    text = fail(["replay", str(path), "--alloc-conf", settings], capsys, 2)
    assert "large_segment_size_mb must be at most 1048576" in text


@pytest.mark.parametrize(
    "change",
    [
        "DROP TABLE ops; CREATE VIEW ops AS WITH RECURSIVE x(i) AS (SELECT 1 UNION ALL SELECT i + 1"
        " FROM x) SELECT i AS id, 'a' AS name FROM x",
        "DROP TABLE modules; CREATE TABLE modules (id INTEGER PRIMARY KEY, class TEXT DEFAULT '',"
        " name TEXT AS (printf('%.*c', 500000000, 'x')));"
        " INSERT INTO modules (id) VALUES (1), (2)",
        "DROP TABLE ops; CREATE VIEW OPS AS SELECT 1 AS id, 'a' AS name",
        "DROP TABLE ops; CREATE VIRTUAL TABLE ops USING fts5(id, name)",
    ],
)
def test_only_plain_tables_are_read(
    trace: str, change: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with edit_trace(trace) as database:
        database.executescript(change)
    assert "is not a plain table" in fail(["report", trace], capsys)


@pytest.fixture
def long_trace(trace: str) -> str:
    """A trace with a million names of operators, which takes seconds to read."""
    with edit_trace(trace) as database:
        database.execute(
            "INSERT INTO ops WITH RECURSIVE x(i) AS (SELECT 1000 UNION ALL SELECT i + 1 FROM x"
            " LIMIT 1000000) SELECT i, 'aten::op' || i FROM x"
        )
    return trace


def test_ctrl_c_ends_a_long_read(long_trace: str) -> None:
    reader = _core.Reader(long_trace)
    begin = time.monotonic()
    reader.ops()
    whole = time.monotonic() - begin
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    begin = time.monotonic()
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        with pytest.raises(KeyboardInterrupt):
            reader.ops()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - begin < max(1, whole / 2)


def test_other_threads_run_during_a_long_read(long_trace: str) -> None:
    reader = _core.Reader(long_trace)
    turns = 0
    is_done = threading.Event()

    def count() -> None:
        nonlocal turns
        while not is_done.wait(0.005):
            turns += 1

    thread = threading.Thread(target=count)
    thread.start()
    reader.ops()
    is_done.set()
    thread.join()
    assert turns > 5


def test_control_characters_do_not_reach_the_terminal(
    trace: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    with edit_trace(trace) as database:
        database.execute("UPDATE modules SET name = 'a' || char(27) || '[2J' || char(155) || 'b'")
    for arguments in (["--to", "csv", "--table", "tensors"], ["--to", "flamegraph"]):
        assert main(["export", trace, *arguments]) == 0
        text = capfdbinary.readouterr().out.decode()
        assert "a?[2J?b" in text
        assert not any(ord(letter) < 32 and letter not in "\r\n" for letter in text)


@pytest.mark.parametrize(
    "error", [ValueError("a\nb"), TypeError("x" * 9999), MemoryError(), RecursionError("deep")]
)
def test_unexpected_error_is_one_line(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def break_down(args: object) -> int:
        raise error

    monkeypatch.delenv("TIDEGAUGE_DEBUG", raising=False)
    monkeypatch.setattr(main_module.devices, "run", break_down)
    fail(["devices"], capsys)
    if not isinstance(error, MemoryError):
        monkeypatch.setenv("TIDEGAUGE_DEBUG", "1")
        with pytest.raises(type(error)):
            main(["devices"])


@pytest.mark.parametrize(
    "command",
    [
        ["report", "{trace}", "--top", "{long}"],
        ["estimate", "m.py", "--fsdp", "{long}"],
        ["estimate", "m.py", "--hsdp", "2x{long}"],
        ["estimate", "m.py", "--hsdp", "99999999x99999999"],
        ["estimate", "m.py", "--routing", "{long}"],
        ["estimate", "m.py", "--lora", "rank={long}"],
        ["estimate", "m.py", "--ac", "every:{long}"],
        ["estimate", "m.py", "--ac", "full:0-{long}"],
        ["estimate", "m.py", "--device-memory", "{long}GiB"],
        ["plan", "m.py", "--budget", "{long}GiB"],
        ["rehearse", "--gpus", "{long}", "m.py"],
        ["rehearse", "--gpus", "99999999", "--nodes", "99999999", "m.py"],
        ["rehearse", "--rank", "{long}", "m.py"],
        ["rehearse", "--steps", "{long}", "m.py"],
        ["rehearse", "--routing", "{long}", "m.py"],
        ["estimate", "m.py", "--pp", "{long}"],
        ["watch", "{trace}", "--every", "{long}"],
    ],
    ids=lambda command: " ".join(command[:3]),
)
def test_numbers_of_any_length_are_refused_in_one_line(
    command: list[str], trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python's own conversion fails beyond 4,300 digits."""
    (tmp_path / "m.py").touch()
    words = [word.format(trace=trace, long="9" * 5000) for word in command]
    words = [str(tmp_path / "m.py") if word == "m.py" else word for word in words]
    try:
        code = main(words)
    except SystemExit as end:  # of argparse, which prints the usage before
        code = end.code  # type: ignore[assignment]
    message = capsys.readouterr().err.splitlines()[-1]
    assert code == 2
    assert message.startswith("tidegauge")
    assert len(message) <= 500


@pytest.mark.parametrize("closing", [">&-", "2>&-", ">&- 2>&-"])
@pytest.mark.parametrize(
    ("command", "code"),
    [("devices", 0), ("watch {trace}", 0), ("report {trace}", 0), ("estimate none.py", 2)],
)
def test_closed_streams_do_not_change_the_exit_code(
    command: str, code: int, closing: str, trace: str
) -> None:
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m tidegauge {command.format(trace=trace)} {closing}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
