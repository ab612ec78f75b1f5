# SPDX-License-Identifier: BSD-3-Clause
"""The exceptions of tidegauge."""

__all__ = ["FormatError", "IoError"]


class FormatError(ValueError):
    """A file is damaged, truncated, of another kind, or newer than this version can read."""


class IoError(OSError):
    """A file cannot be read or written."""
