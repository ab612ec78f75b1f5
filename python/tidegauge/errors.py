# SPDX-License-Identifier: BSD-3-Clause
"""What tidegauge raises besides Python's own errors.

FormatError, a ValueError: a file is damaged, cut short, not what it claims to be, or newer than
this version reads. IoError, an OSError: a file cannot be read or written.
"""

from tidegauge._C import FormatError, IoError

__all__ = ["FormatError", "IoError"]
