# SPDX-License-Identifier: BSD-3-Clause
"""Compares the requests of estimates with those to torch's own CUDA allocator, one by one:
`.venv/bin/python tools/compare_requests.py [-v] [NAME...]`. Says which ops make requests that the
other side does not make; -v lists every difference in order. Needs no GPU.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tidegauge.allocator import find_device
from tidegauge.estimation import Estimator, Plan, load_contract
from update_oracle import CASES, Case, run_case  # also finds the helpers of the tests

from simulated_requests import Row, read_requests  # isort: skip

# Ops that only pass on what another op asked for.
_PLUMBING = {
    "empty_memory_format", "empty_strided", "empty_like", "new_empty", "new_empty_strided",
    "new_zeros", "zeros", "zeros_like", "resize_", "resize_as_", "_to_copy", "to_dtype",
    "to_dtype_layout", "clone", "contiguous", "fill__Scalar", "zero_",
}  # fmt: skip


def read_cuda(case: Case, folder: Path, steps: int) -> list[Row]:
    path = folder / "cuda.json"
    run_case(case, steps, path)
    rows = []
    for row in json.loads(path.read_text()):
        ops = row.get("ops", [])
        named = [op for op in ops if op not in _PLUMBING] or ops
        kernel = next(
            (k for k in row.get("kernels", ()) if "empty" not in k and "resize" not in k), ""
        )
        what = (
            " < ".join(named[:3]) + (f" [{kernel}]" if kernel else "") + f" {row.get('line', '')}"
        )
        rows.append(Row(row["size"], row["stream"], what))
    return rows


def read_ours(case: Case, folder: Path) -> tuple[list[Row], int]:
    """The requests, and the number of steps that make them."""
    task = case.task
    plan = Plan(**task["plan"], settings=tuple(sorted(task["settings"].items())))
    contract = load_contract(task["target"])
    with Estimator(contract, rank="0", folder=str(folder)) as estimator:
        estimate = estimator.estimate(plan, find_device("h100-80g"), task["alloc_conf"])
        return read_requests(estimator.trace_of(estimate)), estimate.step_count


def difference(cuda: list[Row], ours: list[Row], folder: Path) -> Iterator[tuple[str, int, Row]]:
    """Which side has the row, its position there, and the row."""
    sides = {"cuda": cuda, "ours": ours}
    for name, rows in sides.items():
        (folder / name).write_text("".join(f"{row.size} {row.stream}\n" for row in rows))
    formats = [f"--{kind}-line-format={kind[0]} %dn\n" for kind in ("old", "new")]
    found = subprocess.run(
        ["diff", "-d", *formats, "--unchanged-line-format=", folder / "cuda", folder / "ours"],
        capture_output=True,
        text=True,
        check=False,
    )
    for line in found.stdout.splitlines():
        side, number = line.split()
        name = "cuda" if side == "o" else "ours"
        yield name, int(number) - 1, sides[name][int(number) - 1]


def compare(case: Case, is_verbose: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ours, steps = read_ours(case, folder)
        cuda = read_cuda(case, folder, steps)
        rows = list(difference(cuda, ours, folder))
    requests = {
        side: sum(1 for row in side_rows if row.size > 0)
        for side, side_rows in (("cuda", cuda), ("ours", ours))
    }
    print(f"== {case.name}: requests {requests}, different rows {len(rows)}", flush=True)
    counts: dict[str, Counter[tuple[str, int]]] = {"cuda": Counter(), "ours": Counter()}
    for side, number, row in rows:
        if is_verbose:
            print(f"  {side} {number:6} {row.size:>14,} s{row.stream} {row.what[:220]}")
        counts[side][row.what[:150] if row.size > 0 else "free", row.size] += 1
    for side, counter in counts.items():
        for (what, size), count in counter.most_common(None if is_verbose else 40):
            print(f"  only {side} {count:4} x {size:>14,} {what}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-v", action="store_true", dest="is_verbose")
    parser.add_argument("names", nargs="*")
    arguments: Any = parser.parse_args()
    for case in CASES:
        if not arguments.names or case.name in arguments.names:
            compare(case, arguments.is_verbose)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
