# SPDX-License-Identifier: BSD-3-Clause
"""The exceptions of tidegauge."""

__all__ = ["FormatError", "IoError", "TorchError"]


class FormatError(ValueError):
    """A file is damaged, truncated, of another kind, or newer than this version can read."""


class IoError(OSError):
    """A file cannot be read or written."""


class TorchError(ImportError):
    """This part of tidegauge needs torch, which is missing or has another minor version."""
