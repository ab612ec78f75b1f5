# SPDX-License-Identifier: BSD-3-Clause
"""The natural order of names."""

from __future__ import annotations

import re


def natural_order(text: str) -> list[int | str]:
    """A sort key that puts "layers.10" after "layers.9" and ignores case."""
    return [int(part) if part.isdigit() else part.lower() for part in re.split("([0-9]+)", text)]
