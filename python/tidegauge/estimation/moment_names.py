# SPDX-License-Identifier: BSD-3-Clause
"""The names of the moments of an estimate; checked before torch is imported."""

from __future__ import annotations

MOMENTS = ("init", "first", "steady")


def parse_moments(text: str) -> tuple[str, ...]:
    """`init,steady`. Raises ValueError for another name."""
    names = tuple(text.split(","))
    for name in names:
        if name not in MOMENTS:
            raise ValueError(
                f"invalid moments '{text}' (expected some of {', '.join(MOMENTS)}, with commas)"
            )
    return names
