#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes docs/coverage.md: which models of transformers a simulation can train.

Usage: tools/update_coverage.py [NAME...]. Trains each model twice on the CPU, really and simulated.
With names, prints their rows and writes nothing.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from markdown_text import wrap_prose

ROOT = Path(__file__).parents[1]
SUPPORT = ROOT / "tests" / "python" / "support"
PROGRAM = SUPPORT / "model_coverage.py"
DOCUMENT = ROOT / "docs" / "coverage.md"
_AT_ONCE = 16  # models in one process


def measure(names: Sequence[str]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    left = [*names]
    while left:
        rest = left[:_AT_ONCE]
        run = subprocess.run(
            [sys.executable, PROGRAM, *rest],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=False,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        found = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
        rows += found
        if len(found) < len(rest):  # it died, which is a result too
            name = rest[len(found)]
            reason = f"the process ended with {run.returncode}"
            rows.append({"name": name, "real": reason, "simulated": None, "routing": ""})
        left = left[len(found) + (len(found) < len(rest)) :]
        print(f"{len(rows)} of {len(names)}", file=sys.stderr)
    return rows


def judge(row: dict[str, Any]) -> str:
    """`equal`, `refused` (by the real run too), or what is wrong."""
    if isinstance(row["real"], str):
        return "refused"
    if isinstance(row["simulated"], str):
        return "not simulated"
    return "equal" if row["real"] == row["simulated"] else "differs"


def render(rows: Sequence[dict[str, Any]]) -> str:
    counts = dict.fromkeys(("equal", "refused", "not simulated", "differs"), 0)
    for row in rows:
        counts[judge(row)] += 1
    lines = [
        "# Models that a simulation can train",
        "",
        wrap_prose(
            "`tools/update_coverage.py` writes this page. It builds a small model of each type "
            "from its config, trains two steps with AdamW on the CPU, really and simulated, and "
            "compares the peak and the memory after the steps. "
            f"transformers {version('transformers')}, torch {version('torch').partition('+')[0]}."
        ),
        "",
        wrap_prose(
            f"Of {len(rows)} models, {counts['equal']} have equal bytes. "
            f"The real run of the small config fails for {counts['refused']}. Of the others, "
            f"{counts['not simulated']} are not simulated, and the bytes differ for "
            f"{counts['differs']}."
        ),
    ]
    titles = {
        "differs": "Bytes differ",
        "not simulated": "Not simulated",
        "refused": "The real run of the small config fails",
    }
    for verdict, title in titles.items():
        chosen = [row for row in rows if judge(row) == verdict]
        if chosen:
            lines += ["", f"## {title}", "", "| model | reason |", "|---|---|"]
            lines += [f"| `{row['name']}` | {_reason(row, verdict)} |" for row in chosen]
    lines += ["", "## Equal bytes", "", "| model | peak | after the steps |", "|---|---|---|"]
    for row in rows:
        if judge(row) == "equal":
            note = f" (routing {row['routing']})" if row["routing"] else ""
            peak, after = row["simulated"]
            lines.append(f"| `{row['name']}`{note} | {peak:,} | {after:,} |")
    return "\n".join(lines) + "\n"


def _reason(row: dict[str, Any], verdict: str) -> str:
    if verdict == "differs":
        return f"real {row['real'][0]:,}, simulated {row['simulated'][0]:,} bytes at the peak"
    text = row["real"] if verdict == "refused" else row["simulated"]
    text = re.sub(r"\S*/site-packages/", "", text)  # of this machine
    return text[:130].replace("|", "\\|").replace("<", "&lt;")


def main() -> int:
    sys.path.insert(0, str(SUPPORT))
    from model_coverage import list_models

    names = sys.argv[1:]
    rows = measure(names or list_models())
    if names:
        for row in rows:
            print(f"{judge(row):14} {json.dumps(row)}")
        return 0
    DOCUMENT.write_text(render(rows), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
