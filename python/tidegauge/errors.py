# SPDX-License-Identifier: BSD-3-Clause
"""What tidegauge raises besides Python's own errors."""

__all__ = ["FormatError", "IoError"]


class FormatError(ValueError):
    """A file is damaged, cut short, not what it claims to be, or newer than this version reads."""


class IoError(OSError):
    """A file cannot be read or written."""
