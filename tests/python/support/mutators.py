# SPDX-License-Identifier: BSD-3-Clause
"""Mutations that keep the structure of a file, so that the damage gets past its checks."""

from __future__ import annotations

import copy
import json
import pickle
import random
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from sealing import edit_trace

NUMBERS = [-1, 0, 1, 2, 255, 511, 512, 2**20, 2**31 - 1, 2**31, 2**32, 2**53, 2**62, 2**63 - 1]
TEXTS = ["", ".", "a" * 3000, ".x" * 20_000, "\x1b[2J", "\x00", "\udcff", "9" * 5000, "²", "cuda:0"]


def fnv(content: bytes) -> int:
    """The checksum of a batch, as docs/trace-format.md defines it."""
    checksum = 0xCBF29CE484222325
    for byte in content:
        checksum = ((checksum ^ byte) * 0x100000001B3) & (2**64 - 1)
    return checksum >> 1


def draw_value(draw: random.Random) -> Any:
    number = draw.choice(NUMBERS) + draw.randrange(-2, 3)
    number = max(-(2**63), min(2**63 - 1, number))
    text = draw.choice(TEXTS).encode("utf-8", "replace").decode()
    return draw.choice([number, -number, text, None, 1.5, draw.randbytes(9)])


def mutate_trace(path: Path, draw: random.Random) -> None:
    """Changes events under valid checksums, cells, rows, tables or facts of a trace."""
    with edit_trace(path) as database:
        for _ in range(draw.choice((1, 1, 2, 5))):
            with suppress(sqlite3.Error, OverflowError):  # some columns reject some values
                draw.choice(_TRACE_CHANGES)(database, draw)


def _tables(database: sqlite3.Connection) -> list[str]:
    rows = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    return [name for (name,) in rows]


def _change_events(database: sqlite3.Connection, draw: random.Random) -> None:
    rows = database.execute("SELECT first_sequence, event_count, events FROM batches").fetchall()
    rows = [row for row in rows if isinstance(row[2], bytes) and row[2]]
    if not rows:  # an earlier change took them
        return
    sequence, count, content = draw.choice(rows)
    changed = bytearray(content)
    for _ in range(draw.choice((1, 3, 30))):
        at = draw.randrange(len(changed))
        change = draw.randrange(4)
        if change == 0:
            changed[at] = draw.randrange(256)
        elif change == 1:
            changed[at] ^= 1 << draw.randrange(8)
        elif change == 2:
            del changed[at : at + draw.randrange(1, 9)]
        else:
            changed[at:at] = changed[at : at + draw.randrange(1, 40)]
        changed = changed or bytearray(1)
    count = draw.choice((count, count, count - 1, draw.choice(NUMBERS)))
    database.execute(
        "UPDATE batches SET events = ?, checksum = ?, event_count = ? WHERE first_sequence = ?",
        (bytes(changed), fnv(changed), count, sequence),
    )


def _change_cells(database: sqlite3.Connection, draw: random.Random) -> None:
    table = draw.choice(_tables(database))
    columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
    where = draw.choice(("", f" WHERE abs(random()) % {draw.choice((2, 10, 100))} = 0"))
    statement = f"UPDATE OR REPLACE {table} SET {draw.choice(columns)} = ?{where}"
    database.execute(statement, (draw_value(draw),))


def _change_rows(database: sqlite3.Connection, draw: random.Random) -> None:
    table = draw.choice(_tables(database))
    if draw.randrange(2):
        database.execute(f"DELETE FROM {table} WHERE abs(random()) % 3 = 0")
    else:
        width = len(list(database.execute(f"PRAGMA table_info({table})")))
        values = [draw_value(draw) for _ in range(width)]
        places = ", ".join("?" * width)
        database.execute(f"INSERT OR REPLACE INTO {table} VALUES ({places})", values)


def _change_schema(database: sqlite3.Connection, draw: random.Random) -> None:
    table = draw.choice(_tables(database))
    columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
    database.execute("DROP VIEW IF EXISTS allocations")
    database.execute(
        draw.choice(
            (
                f"DROP TABLE {table}",
                f"ALTER TABLE {table} RENAME COLUMN {draw.choice(columns)} TO other",
                f"ALTER TABLE {table} ADD COLUMN extra DEFAULT 5",
                f"PRAGMA user_version = {draw.choice((1000, 1002, 1003, 1999))}",
            )
        )
    )


_TRACE_CHANGES: list[Callable[[sqlite3.Connection, random.Random], None]] = [
    _change_events,
    _change_events,
    _change_cells,
    _change_rows,
    _change_schema,
]


def mutate_snapshot(snapshot: Any, draw: random.Random) -> Any:
    """A copy with other settings, sizes, addresses, streams, actions, or parts missing."""
    changed = copy.deepcopy(snapshot)
    for _ in range(draw.choice((1, 1, 3, 10))):
        places = list(_places(changed))
        if not places:
            break
        owner, key = draw.choice(places)
        change = draw.randrange(5)
        if change == 0:
            del owner[key]
        elif change == 1 and isinstance(owner, list):
            owner.insert(draw.randrange(len(owner) + 1), copy.deepcopy(owner[key]))
        elif change == 2:
            others = [value for each, k in places if isinstance(value := each[k], type(owner[key]))]
            owner[key] = copy.deepcopy(draw.choice(others))
        elif isinstance(owner[key], int) and draw.randrange(2):
            owner[key] += draw.choice((-512, -1, 1, 512, 2**20, 2**40))
        else:
            value = draw_value(draw)
            owner[key] = value if not isinstance(value, bytes) else value.hex()
    return changed


def _places(value: Any) -> list[tuple[Any, Any]]:
    """All (container, key) in nested lists and dictionaries."""
    places: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            keys: list[Any] = list(each)
        elif isinstance(each, list):
            keys = list(range(len(each)))
        else:
            continue
        places += [(each, key) for key in keys]
        waiting += [each[key] for key in keys]
    return places


def write_snapshot(path: Path, snapshot: Any) -> None:
    if path.suffix == ".json":
        path.write_text(json.dumps(snapshot))
    else:
        path.write_bytes(pickle.dumps(snapshot))


def mutate_text(text: str, draw: random.Random) -> str:
    """Exchanges, repeats or removes words, numbers and punctuation."""
    parts = list(_split(text))
    for _ in range(draw.choice((1, 2, 5))):
        at = draw.randrange(len(parts) + 1)
        change = draw.randrange(4)
        if change == 0 or at == len(parts):
            parts.insert(at, str(draw_value(draw)))
        elif change == 1:
            parts[at] = draw.choice(parts)
        elif change == 2:
            del parts[at]
        else:
            parts[at : at + 3] = parts[at : at + 3] * draw.choice((2, 50))
        parts = parts or [""]
    return "".join(parts)


def _split(text: str) -> list[str]:
    parts = [""]
    for letter in text:
        if letter.isalnum() and parts[-1].isalnum():
            parts[-1] += letter
        else:
            parts.append(letter)
    return parts[1:]


def mutate_config(text: str, draw: random.Random) -> str:
    """Changes values of a JSON object."""
    values = json.loads(text)
    for _ in range(draw.choice((1, 1, 2, 4))):
        key = draw.choice([*values, "rope_scaling", "auto_map", "torch_dtype", "layer_types"])
        value = draw_value(draw)
        value = value.decode("latin-1") if isinstance(value, bytes) else value
        values[key] = draw.choice([value, [value], {key: value}, {}, [], True])
    return json.dumps(values)
