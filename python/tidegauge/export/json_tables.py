# SPDX-License-Identifier: BSD-3-Clause
"""All tables as one JSON object: table names with lists of rows."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tidegauge.export.tables import TABLES
from tidegauge.report.summary import Summary


def to_json(summaries: Sequence[Summary]) -> str:
    """Raises ValueError for two traces of the same rank."""
    tables = {
        name: [dict(zip(table.columns, row, strict=True)) for row in table.rows(summaries)]
        for name, table in TABLES.items()
    }
    return json.dumps(tables, indent=2)
