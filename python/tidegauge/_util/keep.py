# SPDX-License-Identifier: BSD-3-Clause
"""How much of a long run a trace keeps: "10m", "500steps"."""

from __future__ import annotations

import re

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_LONGEST_SECONDS = 10 * 365 * 86400


def parse_keep(text: str) -> tuple[int, int]:
    """Returns (nanoseconds, steps), one of which is 0. Raises ValueError."""
    found = re.fullmatch(r"([0-9]{1,12}) ?(s|m|h|d|steps?)", text.strip())
    count = int(found[1]) if found else 0
    if found is None or count == 0:
        raise ValueError(f"cannot keep {text[:40]!r} (expected e.g. 10m, 2h or 500steps)")
    if found[2].startswith("step"):
        return 0, count
    return min(count * _SECONDS[found[2]], _LONGEST_SECONDS) * 10**9, 0
