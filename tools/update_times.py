# SPDX-License-Identifier: BSD-3-Clause
"""Writes the table of published steps in docs/accuracy.md: run it with the Python of .venv."""

from __future__ import annotations

import re
import sys

from update_readme import BLOCK, REPO

sys.path.insert(0, str(REPO / "tests" / "python" / "support"))
from published_times import predict


def times() -> str:
    rows = [
        "| run | measured | by data sheet | calibrated | error |",
        "|---|---:|---:|---:|---:|",
    ]
    for each in predict():
        error = "calibrates" if each.calibrates else f"{each.error:+.1%}"
        rows.append(
            f"| {each.name} | {each.measured:,.0f} | {each.by_data_sheet:,.0f} | "
            f"{each.calibrated:,.0f} | {error} |"
        )
    return "\n".join([*rows, ""])


def main() -> None:
    path = REPO / "docs" / "accuracy.md"

    def replace(block: re.Match[str]) -> str:
        return block[1] + times() + block[3] if block[2] == "times" else block[0]

    path.write_text(BLOCK.sub(replace, path.read_text()))


if __name__ == "__main__":
    main()
