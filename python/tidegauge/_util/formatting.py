# SPDX-License-Identifier: BSD-3-Clause
"""Sizes, shares, durations and names as text."""

from __future__ import annotations

import itertools
import re
import shutil
import sys
from collections.abc import Sequence
from typing import TextIO

from tidegauge._core import BYTE_UNITS
from tidegauge._core import render_bytes as render_bytes


def parse_bytes(text: str) -> int | None:
    """The bytes in `40GiB`, `512 MiB` or `1024`; None if the text is not a size."""
    match = re.fullmatch(rf"(\d+(?:\.\d+)?)\s*({'|'.join(BYTE_UNITS)})?", text.strip())
    if not match or float(match[1]) >= 2**62:
        return None
    return round(float(match[1]) * BYTE_UNITS[match[2] or "B"])


def parse_count(text: str) -> int | None:
    """A number of at most nine digits, without a sign; None if the text is not one."""
    return int(text) if re.fullmatch(r"\s*[0-9]{1,9}\s*", text) else None


def render_change(size_bytes: int) -> str:
    """`+1.50 KiB`, `-3 B`; `0 B` has no sign."""
    return ("+" if size_bytes > 0 else "") + render_bytes(size_bytes)


def render_share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else ""


def render_duration(duration_ns: int) -> str:
    seconds = duration_ns / 1e9
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {seconds:02} s"


def render_brief_duration(duration_ns: int) -> str:
    """At most eight characters: `0.8 ms`, `12.3 s`, `5 min`."""
    if duration_ns < 999_950_000:
        return f"{duration_ns / 1e6:.1f} ms"
    return render_duration(duration_ns) if duration_ns < 60e9 else f"{duration_ns / 60e9:.0f} min"


def render_rough_duration(seconds: float) -> str:
    """`40 s`, `3 min`, `2 h`."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5970 else f"{seconds / 3600:.0f} h"


def shorten(text: str, width: int) -> str:
    """Cuts the middle: the end of a module's name says most, and its root something."""
    if len(text) <= width:
        return text
    head = max(width - 1, 0) // 3
    return text[:head] + "…" + text[len(text) - (width - 1 - head) :]


def is_terminal(stream: TextIO | None) -> bool:
    """False if the stream is closed: `>&-` in a shell."""
    return stream is not None and not stream.closed and stream.isatty()


def text_width() -> int:
    """The columns of the terminal, between 60 and 200; 80 if the output is not a terminal."""
    if not is_terminal(sys.stdout):
        return 80
    return min(max(shutil.get_terminal_size().columns, 60), 200)


def squeeze(lines: Sequence[str], width: int) -> list[str]:
    """Narrows tables to `width` columns, each between blank lines.

    First its gaps, the widest first; a gap is where all rows are blank. If that is not enough, the
    title above the first column gets a line of its own, and rows continue on the next line: at the
    last parenthesis, or all rows at the same column. Lines without a gap are text, which is wrapped
    already.
    """
    narrow: list[str] = []
    for is_blank, group in itertools.groupby(lines, key=lambda line: not line.strip()):
        table = [*group]
        narrow += table if is_blank else _squeeze_table(table, width)
    return narrow


class _Row(str):
    """A line with columns; others are text."""


def _squeeze_table(texts: Sequence[str], width: int) -> list[str]:
    lines = [_Row(text) if "  " in text.strip() else text for text in texts]
    found = _close_gaps(lines, width)
    first = next((i for i, line in enumerate(lines) if isinstance(line, _Row)), 0)
    title = "" if lines[first].startswith(" ") else lines[first].partition("  ")[0]
    if title and _is_too_wide(found, width):
        rest = _Row(" " * len(title) + lines[first][len(title) :])
        found = _close_gaps([*lines[:first], title, rest, *lines[first + 1 :]], width)
    if _is_too_wide(found, width):
        found = [part for line in found for part in _cut_at_parenthesis(line, width)]
    return _fold(found, width) if _is_too_wide(found, width) else found


def _is_too_wide(lines: Sequence[str], width: int) -> bool:
    return any(len(line) > width for line in lines if isinstance(line, _Row))


def _close_gaps(lines: Sequence[str], width: int) -> list[str]:
    rows = [line for line in lines if isinstance(line, _Row)]
    over = max(map(len, rows), default=0) - width
    if over <= 0:
        return [*lines]
    gaps: list[list[int]] = [[]]
    for column in range(max(map(len, rows))):
        if all(row[column : column + 1].strip() == "" for row in rows):
            gaps[-1].append(column)
        elif gaps[-1]:
            gaps.append([])
    if gaps[0][:1] == [0]:
        gaps[0] = gaps[0][1:]  # the indentation stays two columns wide
    dropped: set[int] = set()
    while over > 0 and len(widest := max(gaps, key=len)) > 1:
        dropped.add(widest.pop())
        over -= 1
    return [
        _Row("".join(letter for i, letter in enumerate(line) if i not in dropped))
        if isinstance(line, _Row)
        else line
        for line in lines
    ]


def _cut_at_parenthesis(line: str, width: int) -> list[str]:
    head, _, tail = line.rpartition(" (")
    is_cut = isinstance(line, _Row) and len(line) > width and bool(head.strip())
    return [_Row(head.rstrip()), f"{_FOLD}({tail}"] if is_cut else [line]


def _fold(lines: Sequence[str], width: int) -> list[str]:
    """Continues all rows below, from the last column that begins before `width`."""
    rows = [line for line in lines if isinstance(line, _Row)]
    blank = [c for c in range(2, width + 1) if all(row[c : c + 1].strip() == "" for row in rows)]
    if not blank:
        return [*lines]
    folded: list[str] = []
    for line in lines:
        if not isinstance(line, _Row):
            folded.append(line)
            continue
        folded.append(line[: blank[-1]].rstrip())
        if rest := line[blank[-1] :].rstrip():
            folded.append(f"{_FOLD}{rest}")
    return folded


_FOLD = " " * 6


def make_printable(text: str, keep: str = "") -> str:
    """Replaces control characters but `keep`: names in a trace must not affect the terminal."""
    return "".join(letter if letter.isprintable() or letter in keep else "?" for letter in text)
