# SPDX-License-Identifier: BSD-3-Clause
"""What somebody may have meant who wrote a name that does not exist."""

from __future__ import annotations

import difflib
from collections.abc import Sequence


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """`did you mean h100-80g?`, or all that are known."""
    alike = [each for each in known if name and each.startswith(name.lower())]
    alike = alike or difflib.get_close_matches(name.lower(), known)
    return f"did you mean {' or '.join(alike)}?" if alike else f"known are {', '.join(known)}"
