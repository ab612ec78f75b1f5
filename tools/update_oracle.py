# SPDX-License-Identifier: BSD-3-Clause
"""Compares estimates with torch's own CUDA allocator. Writes benchmarks/oracle.json and the table
in docs/accuracy.md: `.venv/bin/python tools/update_oracle.py [NAME...]` (some minutes; no GPU).
"""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from tidegauge import standin
from tidegauge.allocator import Assumptions, DeviceModel
from update_readme import BLOCK, REPO

sys.path.insert(0, str(REPO / "tests" / "standin"))
sys.path.insert(0, str(REPO / "tests" / "python" / "support"))
from oracle_cases import CASES, Case
from oracle_estimate import estimate_case

RESULTS = REPO / "benchmarks" / "oracle.json"
# No case runs out of memory.
DEVICE = DeviceModel("", "stand-in", 1 << 40, 9, 0, 132)


def run_case(case: Case, requests: Path | None = None, **more: int) -> dict[str, Any]:
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
            json.dumps({**case.task, **more}),
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


def describe_miss(row: dict[str, Any]) -> str:
    """What is still unknown about a configuration."""
    cuda, ours = row["cuda"]["steady"], row["ours"]
    if ours["tensors"] != cuda["requested"]:
        return "requests of some kernels, or their order"
    if ours["reserved"] != cuda["reserved"]:
        return "the order of some requests and frees"
    return ""


def render(results: dict[str, Any]) -> str:
    rows = [
        "| configuration | tensors, CUDA | ours | reserved, CUDA | ours | difference | still "
        "unknown |",
        "|---|---:|---:|---:|---:|---:|---|",
    ]
    for name, row in results["cases"].items():
        cuda, ours = row["cuda"]["steady"], row["ours"]
        share = (ours["reserved"] - cuda["reserved"]) / cuda["reserved"]
        rows.append(
            f"| {name} | {cuda['requested']:,} | {ours['tensors']:,} | {cuda['reserved']:,} | "
            f"{ours['reserved']:,} | {share:+.2%} | {describe_miss(row)} |"
        )
    return "\n".join([*rows, ""])


def count_exact(results: dict[str, Any]) -> str:
    """A sentence for the document and the terminal."""
    pairs = [(row["cuda"]["steady"], row["ours"]) for row in results["cases"].values()]
    tensors = sum(cuda["requested"] == ours["tensors"] for cuda, ours in pairs)
    reserved = sum(cuda["reserved"] == ours["reserved"] for cuda, ours in pairs)
    near = sum(
        abs(ours["reserved"] - cuda["reserved"]) <= 0.005 * cuda["reserved"] for cuda, ours in pairs
    )
    return (
        f"Of {len(pairs)} configurations, tensors are equal to the byte in {tensors}, reserved "
        f"memory in {reserved}, and within 0.5 % in {near}."
    )


def main(names: list[str]) -> None:
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"cases": {}}
    results["torch"] = torch.__version__
    chosen = [case for case in CASES if not names or case.name in names]
    with ThreadPoolExecutor(2) as pool:
        measured = [(case, pool.submit(run_case, case)) for case in chosen]
        for case, job in measured:
            print(case.name, file=sys.stderr, flush=True)
            try:
                row = {"cuda": job.result(), "ours": estimate_case(case)}
            except Exception as error:
                print(f"  failed: {error}", file=sys.stderr, flush=True)
                continue
            results["cases"][case.name] = row
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
