# SPDX-License-Identifier: BSD-3-Clause
"""Tables as CSV by RFC 4180: CRLF line ends, and quotes where needed."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from tidegauge.export.tables import TABLES, Cell
from tidegauge.report.summary import Summary

# A spreadsheet treats a cell that begins like this as a formula, and may run it.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def to_csv(summaries: Sequence[Summary], table: str) -> str:
    """One of TABLES, with a header line.

    Names that a spreadsheet would treat as formulas get an apostrophe in front; JSON keeps them
    unchanged. Raises ValueError for two traces of the same rank.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(TABLES[table].columns)
    writer.writerows(map(_escape_formulas, TABLES[table].rows(summaries)))
    return text.getvalue()


def _escape_formulas(row: tuple[Cell, ...]) -> list[Cell]:
    return [
        f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell for cell in row
    ]
