# SPDX-License-Identifier: BSD-3-Clause
"""Prose of documents that tools write: lines of at most 120 characters, as everywhere in docs/."""

from __future__ import annotations

import textwrap

_WIDTH = 120


def wrap_prose(text: str) -> str:
    """One paragraph, or one item of a list."""
    indent = "  " if text.startswith("- ") else ""
    return textwrap.fill(
        text,
        _WIDTH,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
