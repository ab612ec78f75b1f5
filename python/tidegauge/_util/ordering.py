# SPDX-License-Identifier: BSD-3-Clause
"""The order in which a reader expects names."""

from __future__ import annotations

import re


def natural_order(text: str) -> list[int | str]:
    """Sorts "layers.10" behind "layers.9", and upper case with lower case."""
    return [int(part) if part.isdigit() else part.lower() for part in re.split("([0-9]+)", text)]
