# SPDX-License-Identifier: BSD-3-Clause
"""Compares estimates with torch's own CUDA allocator. Writes benchmarks/oracle.json and the table
in docs/accuracy.md: `.venv/bin/python tools/update_oracle.py [NAME...]` (some minutes; no GPU).
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from tidegauge import standin
from tidegauge.allocator import Assumptions, DeviceModel
from update_readme import BLOCK, REPO

sys.path.insert(0, str(REPO / "tests" / "standin"))
sys.path.insert(0, str(REPO / "tests" / "python" / "support"))
from oracle_cases import CASES, UNKNOWN, Case
from oracle_estimate import estimate_case

RESULTS = REPO / "benchmarks" / "oracle.json"
# No case runs out of memory.
DEVICE = DeviceModel("", "stand-in", 1 << 40, 9, 0, 132)


def run_case(case: Case, steps: int, requests: Path | None = None) -> dict[str, Any]:
    """What torch's allocator says. `requests`: gets the requests (tests/standin/oracle_run.py)."""
    environment = standin.make_environment(
        standin.build(),
        DEVICE,
        1,
        assumptions=Assumptions(context_bytes=0, communication_bytes=0),
    )
    environment["PYTORCH_ALLOC_CONF"] = case.alloc_conf
    environment["TORCH_SYMBOLIZE_MODE"] = "dladdr"
    script = REPO / "tests" / "standin" / "oracle_run.py"
    ended = subprocess.run(
        [
            sys.executable,
            script,
            json.dumps({**case.task, "steps": steps}),
            *([requests] if requests else []),
        ],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode != 0:
        raise RuntimeError(f"{case.name}: {ended.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found


def compare_case(case: Case) -> dict[str, Any]:
    """The figures of both sides, after the same number of steps."""
    with _ESTIMATING:
        ours, steps = estimate_case(case)
    return {"cuda": run_case(case, steps), "ours": ours}


_ESTIMATING = threading.Lock()  # a process simulates one thing at a time


def list_misses(row: dict[str, Any]) -> list[str]:
    """The figures that differ: "steady reserved"."""
    return [
        f"{moment} {name}"
        for moment, figures in row["cuda"].items()
        for name, size in figures.items()
        if row["ours"][moment][name] != size
    ]


def find_share(row: dict[str, Any]) -> float:
    """How much more the steady step reserves by our estimate."""
    cuda, ours = (row[side]["steady"]["reserved"] for side in ("cuda", "ours"))
    return float((ours - cuda) / cuda)


def render(results: dict[str, Any]) -> str:
    rows = [
        "| configuration | tensors, CUDA | ours | reserved, CUDA | ours | difference | figures "
        "that differ | still unknown |",
        "|---|---:|---:|---:|---:|---:|---|---|",
    ]
    for name, row in results["cases"].items():
        cuda, ours = row["cuda"]["steady"], row["ours"]["steady"]
        rows.append(
            f"| {name} | {cuda['requested']:,} | {ours['requested']:,} | {cuda['reserved']:,} | "
            f"{ours['reserved']:,} | {find_share(row):+.2%} | {', '.join(list_misses(row))} | "
            f"{UNKNOWN.get(name, '')} |"
        )
    return "\n".join([*rows, ""])


def count_exact(results: dict[str, Any]) -> str:
    """A sentence for the document and the terminal."""
    rows = [*results["cases"].values()]
    misses = [list_misses(row) for row in rows]
    tensors = sum("steady requested" not in each for each in misses)
    reserved = sum("steady reserved" not in each for each in misses)
    near = sum(abs(find_share(row)) <= 0.005 for row in rows)
    return (
        f"Of {len(rows)} configurations, tensors of the steady step are equal to the byte in "
        f"{tensors}, reserved memory in {reserved}, and within\n0.5 % in {near}. In "
        f"{sum(not each for each in misses)}, all 15 figures are equal."
    )


def main(names: list[str]) -> None:
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"cases": {}}
    results["torch"] = torch.__version__
    chosen = [case for case in CASES if not names or case.name in names]
    with ThreadPoolExecutor(2) as pool:
        for case, job in [(case, pool.submit(compare_case, case)) for case in chosen]:
            print(case.name, file=sys.stderr, flush=True)
            try:
                results["cases"][case.name] = job.result()
            except Exception as error:
                print(f"  failed: {error}", file=sys.stderr, flush=True)
                continue
            RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    found = results["cases"]
    results["cases"] = {case.name: found[case.name] for case in CASES if case.name in found}
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    path = REPO / "docs" / "accuracy.md"

    def replace(block: Any) -> str:
        if block[2] != "oracle":
            return str(block[0])
        return block[1] + count_exact(results) + "\n\n" + render(results) + block[3]

    path.write_text(BLOCK.sub(replace, path.read_text()))


if __name__ == "__main__":
    main(sys.argv[1:])
