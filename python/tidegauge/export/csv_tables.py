# SPDX-License-Identifier: BSD-3-Clause
"""Tables as CSV of RFC 4180: CRLF, and quotes where they are needed."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from tidegauge.export.tables import TABLES, Cell
from tidegauge.report.summary import Summary

# A spreadsheet takes a cell that begins so for a formula, and may run it.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def to_csv(summaries: Sequence[Summary], table: str) -> str:
    """One of TABLES, with a line of titles.

    Names that a spreadsheet would take for formulas get an apostrophe in front; JSON has them as
    they are. ValueError for two traces of a rank.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(TABLES[table].columns)
    writer.writerows(map(_defuse, TABLES[table].rows(summaries)))
    return text.getvalue()


def _defuse(row: tuple[Cell, ...]) -> list[Cell]:
    return [
        f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell for cell in row
    ]
