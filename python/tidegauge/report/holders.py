# SPDX-License-Identifier: BSD-3-Clause
"""Names what keeps growing tensors alive, from the containers that `tidegauge run` found."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

#: The fact of a run that lists the containers (trackers/holders.py), as JSON.
HOLDERS = "holders"


def read_holders(facts: Mapping[str, str]) -> list[dict[str, Any]]:
    """The containers, those with most tensors first. Damaged rows are left out."""
    try:
        rows = json.loads(facts.get(HOLDERS, "[]"))
    except (ValueError, RecursionError):
        return []
    return [row for row in rows if _is_row(row)] if isinstance(rows, list) else []


def _is_row(row: Any) -> bool:
    return (
        isinstance(row, dict)
        and isinstance(row.get("name"), str)
        and isinstance(row.get("count"), int)
        and isinstance(row.get("shapes"), dict)
        and all(isinstance(count, int) for count in row["shapes"].values())
    )


def name_holder(holders: list[dict[str, Any]], tensor: str, count: int) -> str:
    """The container of `count` such tensors, or of results whose autograd graph needs them. Empty
    if unknown."""
    for row in holders:
        if row["shapes"].get(tensor, 0) >= count:
            return str(row["name"])
    for row in holders:
        if row.get("has_graph") and row["count"] >= count:
            return f"the autograd graph of {row['name']}"
    return ""
