# SPDX-License-Identifier: BSD-3-Clause
"""Names that stand for what has none, and short names of ops."""

from __future__ import annotations

NO_MODULE = "(no module)"
UNNAMED_MODULE = "(never called)"
NO_LINE = "(no line)"
ROOT_UNIT = "(root)"


def render_op(op: str) -> str:
    """Shortens `aten::mm.out` to `mm`; keeps other namespaces."""
    return op.removeprefix("aten::").partition(".")[0]
