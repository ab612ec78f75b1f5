# SPDX-License-Identifier: BSD-3-Clause
"""Changes trace files and makes the checksums of their pages valid again."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

_PRIME, _MASK = 0x100000001B3, (1 << 64) - 1


@contextmanager
def edit_trace(path: str | Path) -> Iterator[sqlite3.Connection]:
    """A connection to the trace; the checksums are valid when the context ends."""
    with closing(sqlite3.connect(path)) as database:
        yield database
        database.commit()
    seal(path)


def seal(path: str | Path) -> None:
    """Writes the checksums, as docs/trace-format.md defines them."""
    content = bytearray(Path(path).read_bytes())
    size = int.from_bytes(content[16:18], "big")
    if content[20] != 8 or size < 512:
        return  # an older trace
    for number in range(len(content) // size):
        *words, _ = struct.unpack_from(f"<{size // 8}Q", content, number * size)
        checksum = ((0xCBF29CE484222325 ^ number) * _PRIME) & _MASK
        for word in words:
            checksum = ((checksum ^ word) * _PRIME) & _MASK
        struct.pack_into("<Q", content, (number + 1) * size - 8, checksum)
    Path(path).write_bytes(content)
