# SPDX-License-Identifier: BSD-3-Clause
"""Recorded stacks as lines of a program: `train.py:25 Net.forward`.

A stack is a list of frames, innermost first. `MemTracker(stacks="module")` and threads without
Python record the names of modules instead of lines; these have no line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePath

_FRAME = re.compile(r"(?P<file>.+):(?P<number>\d+) (?P<function>.+)")


def split_stack(frames: str) -> tuple[str, ...]:
    return tuple(frames.splitlines())


class LineNames:
    """Shortens the files of frames: to their name, with folders only if two files share it."""

    def __init__(self, stacks: Iterable[tuple[str, ...]]) -> None:
        files = {
            match["file"]
            for frames in stacks
            for frame in frames
            if (match := _FRAME.fullmatch(frame))
        }
        self._names: dict[str, str] = {}
        waiting, length = files, 1
        while waiting:
            tails: dict[str, list[str]] = {}
            for file in waiting:
                tails.setdefault("/".join(PurePath(file).parts[-length:]), []).append(file)
            for tail, owners in tails.items():
                if len(owners) == 1 or all(len(PurePath(f).parts) <= length for f in owners):
                    self._names.update(dict.fromkeys(owners, tail))
            waiting = {file for file in waiting if file not in self._names}
            length += 1

    def frame(self, frame: str) -> str:
        """`train.py:25 Net.forward`; a frame that is not a line stays as it is."""
        match = _FRAME.fullmatch(frame)
        if not match:
            return frame
        file = self._names.get(match["file"], match["file"])
        return f"{file}:{match['number']} {match['function']}"

    def line(self, stack: tuple[str, ...]) -> str:
        """The innermost frame; empty if the stack has no lines."""
        return self.frame(stack[0]) if stack and _FRAME.fullmatch(stack[0]) else ""
