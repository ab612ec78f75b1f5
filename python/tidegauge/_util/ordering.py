# SPDX-License-Identifier: BSD-3-Clause
"""The natural order of names."""

from __future__ import annotations

import re


def natural_order(text: str) -> list[tuple[int, str]]:
    """A sort key that puts "layers.10" after "layers.9" and ignores case."""
    # Every second part is a number. A longer one is larger; `int` would limit the length.
    return [
        _number_order(part) if i % 2 else (0, part.lower())
        for i, part in enumerate(re.split("([0-9]+)", text))
    ]


def _number_order(digits: str) -> tuple[int, str]:
    significant = digits.lstrip("0")
    return len(significant), significant
