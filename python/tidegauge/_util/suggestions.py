# SPDX-License-Identifier: BSD-3-Clause
"""Suggestions for misspelled names."""

from __future__ import annotations

import difflib
from collections.abc import Sequence


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """`did you mean h100-80g?`, or the list of known names if none is similar."""
    alike = [each for each in known if name and each.startswith(name.lower())]
    alike = alike or difflib.get_close_matches(name.lower(), known)
    return f"did you mean {' or '.join(alike)}?" if alike else f"expected {', '.join(known)}"
