# SPDX-License-Identifier: BSD-3-Clause
"""How far a command with many runs is."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from tidegauge._util.formatting import render_rough_duration

T = TypeVar("T")


class Progress:
    """One line on the terminal: `run 5 of 96, 40 s left: building the model`."""

    def __init__(self, is_shown: bool) -> None:
        self._is_shown = is_shown
        self._runs = 0
        self._total: int | None = None
        self._done = 0
        self._began = time.monotonic()

    def begin(self, total: int) -> None:
        """From now on, counts the results of `count`, of which there will be `total`."""
        self._total, self._done, self._began = total, 0, time.monotonic()

    def count(self, results: Iterable[T]) -> Iterator[T]:
        for result in results:
            self._done += 1
            yield result

    def __call__(self, text: str) -> None:
        self._runs += text == "building the model"
        if self._is_shown:
            print(f"\r\x1b[K{self.describe()}: {text}", end="", file=sys.stderr, flush=True)

    def describe(self) -> str:
        if self._total is None:
            return f"run {self._runs}"
        place = f"run {min(self._done + 1, self._total)} of {self._total}"
        if not self._done:
            return place
        left = (time.monotonic() - self._began) / self._done * (self._total - self._done)
        return f"{place}, {render_rough_duration(left)} left"
