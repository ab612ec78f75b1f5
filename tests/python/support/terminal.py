# SPDX-License-Identifier: BSD-3-Clause
"""Runs a program on a terminal of its own."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

_PATIENCE_S = 120


class Terminal:
    """A running program and what it has shown."""

    def __init__(self, process: subprocess.Popen[bytes], descriptor: int) -> None:
        self.process = process
        self.text = ""
        self._descriptor = descriptor

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def read_until(self, end: str) -> str:
        """All that was shown until now; fails if `end` does not come."""
        deadline = time.monotonic() + _PATIENCE_S
        while end not in self.text:
            assert time.monotonic() < deadline, self.text
            assert self._read(), f"ended without {end!r}: {self.text!r}"
        return self.text

    def read_all(self) -> tuple[str, int]:
        """All that the program shows, and its exit code."""
        while self._read():
            pass
        return self.text, self.process.wait(_PATIENCE_S)

    def _read(self) -> bool:
        """False at the end of the program."""
        if not select.select([self._descriptor], [], [], 1)[0]:
            return True
        try:
            piece = os.read(self._descriptor, 65536)
        except OSError:  # Linux ends a terminal without programs with an error
            return False
        self.text += piece.decode(errors="replace")
        return bool(piece)


@contextlib.contextmanager
def open_terminal(
    command: Sequence[str],
    folder: Path,
    columns: int = 100,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Terminal]:
    """Kills the program at the end, if it is still running."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "TERM": "dumb", **(environment or {})},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
