# SPDX-License-Identifier: BSD-3-Clause
"""What the commands share: exit codes, sizes in and out."""

from __future__ import annotations

import argparse
import re

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_DOES_NOT_FIT = 3

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


class UsageError(Exception):
    """The arguments make no sense together, or with the file."""


def render_bytes(size_bytes: int) -> str:
    """With four digits or fewer: `512 B`, `1.50 KiB`, `23.4 GiB`."""
    if abs(size_bytes) < 1024:
        return f"{size_bytes} B"
    value = float(size_bytes)
    unit = 0
    while abs(value) >= 1023.5 and unit < len(_UNITS) - 1:
        value /= 1024
        unit += 1
    digits = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
    return f"{value:.{digits}f} {_UNITS[unit]}"


def parse_bytes(text: str) -> int:
    """`40GiB`, `512 MiB` or plain bytes; for argparse."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(B|KiB|MiB|GiB|TiB)?", text.strip())
    size_bytes = round(float(match[1]) * 1024 ** _UNITS.index(match[2] or "B")) if match else 0
    if not 0 < size_bytes < 1 << 62:
        raise argparse.ArgumentTypeError(f"'{text}' is no size; expected such as 40GiB")
    return size_bytes
