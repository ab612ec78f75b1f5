# SPDX-License-Identifier: BSD-3-Clause
"""Random and mutated traces: every command reads them, or fails with one clean line."""

from __future__ import annotations

import os
import random
import resource
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from sealing import edit_trace, seal
from tidegauge.cli.main import main

ROUNDS = 3000 if os.environ.get("TIDEGAUGE_LONG") == "1" else 60
_TABLES = ("run", "batches", "modules", "ops", "tensors", "gaps", "peaks", "steps", "categories")


@pytest.fixture(autouse=True)
def _limited_memory() -> Iterator[None]:
    """Limits memory: a number in a file must not make us allocate all of the machine's memory."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (2 << 30), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def flip(file: bytearray, draw: random.Random) -> None:
    for _ in range(draw.choice((1, 3, 50))):
        file[draw.randrange(len(file))] = draw.randrange(256)


def cut(file: bytearray, draw: random.Random) -> None:
    del file[draw.randrange(len(file)) :]


def repeat(file: bytearray, draw: random.Random) -> None:
    begin, size = draw.randrange(len(file)), draw.randrange(5000)
    at = draw.randrange(len(file))
    file[at : at + size] = file[begin : begin + size]


def scramble(file: bytearray, draw: random.Random) -> None:
    file[:] = draw.randbytes(draw.randrange(20_000))


@pytest.mark.parametrize("mutate", [flip, cut, repeat, scramble])
def test_mutated_file_is_read_or_reported_in_one_line(
    traces: Path,
    mutate: object,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert callable(mutate)
    original = Path("before.tide").read_bytes()
    draw = random.Random(7)
    for round_ in range(ROUNDS // 4):
        file = bytearray(original)
        mutate(file, draw)
        Path("bad.tide").write_bytes(file)
        if round_ % 2:  # the damage passes the checksums
            seal("bad.tide")
        _expect_clean(round_, capsys)
        Path("bad.tide-journal").unlink(missing_ok=True)


def test_mutated_tables_are_read_or_reported_in_one_line(
    traces: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Damage that SQLite does not notice: other values, other types, no rows, no tables."""
    original = Path("before.tide").read_bytes()
    draw = random.Random(8)
    for round_ in range(ROUNDS // 2):
        Path("bad.tide").write_bytes(original)
        table = draw.choice(_TABLES)
        with edit_trace("bad.tide") as database:
            columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
            column = draw.choice(columns)
            value = draw.choice(("-1", "0", "9223372036854775807", "'text'", "x'ff00fe'", "1e9"))
            statement = draw.choice(
                (
                    f"UPDATE OR REPLACE {table} SET {column} = {value}",
                    f"DELETE FROM {table}",
                    f"DROP TABLE {table}",
                    f"ALTER TABLE {table} RENAME COLUMN {column} TO other",
                )
            )
            database.execute("DROP VIEW allocations")
            with suppress(sqlite3.Error):  # some columns reject the value
                database.execute(statement)
        _expect_clean(f"{round_}: {statement}", capsys)


def _expect_clean(which: object, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (
        ["report", "bad.tide"],
        ["report", "bad.tide", "--html", "page.html", "--force"],
        ["info", "bad.tide"],
        ["merge", "bad.tide"],
        ["export", "bad.tide", "--to", "memory-viz", "-o", "out", "--force"],
        ["export", "bad.tide", "--to", "perfetto", "-o", "out", "--force"],
    ):
        code = main([*command, "-q"])
        output = capsys.readouterr()
        assert code in (0, 1), which
        if code == 1:
            assert output.out == "", which
            assert output.err.startswith("tidegauge: "), (which, output.err)
            assert "bad.tide" in output.err, (which, output.err)
            assert output.err.count("\n") == 1, (which, output.err)
