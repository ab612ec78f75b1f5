# SPDX-License-Identifier: BSD-3-Clause
"""Reads and writes files that users name."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from tidegauge.errors import FormatError

#: Settings and configs that people write are far smaller.
MAX_TEXT_BYTES = 16 << 20


def read_file(path: str | os.PathLike[str], max_bytes: int, hint: str = "") -> bytes:
    """The content of a regular file. Raises OSError, or FormatError without reading it if it is too
    large or not a regular file, which may have no end (/dev/zero) or block (a pipe).

    `hint`: what to do about a file that is too large.
    """
    with _open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > max_bytes:
            raise FormatError(
                f"{os.fspath(path)} has {size:,} bytes, but the limit is {max_bytes:,}"
                + (f"; {hint}" if hint else "")
            )
        return file.read(max_bytes)


def read_start(path: str | os.PathLike[str], count: int) -> bytes:
    """The first bytes of a regular file. Raises like `read_file`."""
    with _open_regular(path) as file:
        return file.read(count)


def _open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    # Without O_NONBLOCK, opening a pipe waits for a writer.
    file = open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise FormatError(f"{os.fspath(path)} is not a regular file; copy its content to one")
    return file


@contextmanager
def replace_file(path: str) -> Iterator[BinaryIO]:
    """Writes a temporary file beside `path` and renames it at the end, so `path` is never
    incomplete. The temporary name cannot be foreseen, and nothing that has it is opened."""
    part = f"{path}.{secrets.token_hex(8)}.part"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(part, flags, 0o666)
    except OSError as error:
        error.filename = path  # the user does not know the temporary name
        raise
    try:
        with open(descriptor, "wb") as file:
            yield file
        os.replace(part, path)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(part)
        if isinstance(error, OSError) and error.filename == part:
            error.filename = path
        raise
