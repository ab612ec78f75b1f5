# SPDX-License-Identifier: BSD-3-Clause
"""Runs all benchmarks and writes benchmarks/results.json; `make bench` calls it.

`python benchmarks/run.py --case recorder` runs one case and keeps the other results. A missed bar
is printed and recorded, but does not fail the run.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pkgutil
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cases
import torch
from measure import ROUNDS, Ratio
from reports import measure_reports

RESULTS = Path(__file__).parent / "results.json"


def run_cases(names: Sequence[str] = ()) -> tuple[list[Ratio], list[dict[str, object]]]:
    """Runs the named cases, or all; returns their ratios and bars."""
    torch.set_num_threads(1)
    ratios: list[Ratio] = []
    bars: list[dict[str, object]] = []
    every = [module.name for module in pkgutil.iter_modules(cases.__path__, prefix="cases.")]
    for name in [f"cases.{each}" for each in names] or every:
        print(f"running {name} ...", file=sys.stderr)
        case = importlib.import_module(name)
        ratios += case.run()
        if hasattr(case, "bars"):
            bars += [_bar(*each) for each in case.bars()]
    return ratios, bars


def run_core(executable: Path) -> list[dict[str, object]]:
    """The bars of the core, from google-benchmark's medians."""
    print("running core_bench ...", file=sys.stderr)
    output = subprocess.run(
        [
            executable,
            "--benchmark_format=json",
            "--benchmark_repetitions=5",
            "--benchmark_report_aggregates_only=true",
        ],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    runs = [run for run in json.loads(output)["benchmarks"] if run["aggregate_name"] == "median"]
    events = {int(r["known_modules"]): r["events_per_second"] for r in runs if "known_modules" in r}
    memory = [r["bytes_per_storage"] for r in runs if "bytes_per_storage" in r]
    few, many = min(events), max(events)
    (trace,) = [r for r in runs if "load_seconds" in r]
    (summary,) = [r for r in runs if "summary_seconds" in r]
    return [
        _bar(f"events per second, {few} known modules", events[few], 10e6, at_least=True),
        _bar(f"cost of an event, {many} known modules to {few}", events[few] / events[many], 1.2),
        _bar("bytes of memory per live storage, worst case", max(memory), 160),
        *_allocator_bars(runs),
        _bar("bytes of a trace file per event", trace["bytes_per_event"], 40),
        _bar("seconds to load 10 million events", trace["load_seconds"], 20),
        _bar("bytes of memory to load 10 million events", trace["load_peak_bytes"], 2**30),
        _bar("seconds to report on 10 million events", summary["summary_seconds"], 20),
        _bar("bytes of memory to report on them", summary["summary_peak_bytes"], 2**30),
    ]


def _allocator_bars(runs: list[dict[str, Any]]) -> list[dict[str, object]]:
    """The bars of the simulated caching allocator."""
    speeds = {r["is_expandable"]: r for r in runs if "requests_per_second" in r}
    plain, grown = speeds[0]["requests_per_second"], speeds[1]["requests_per_second"]
    source = speeds[0]["label"]
    costs = {int(r["free_blocks"]): r["seconds_per_request"] for r in runs if "free_blocks" in r}
    few, many = min(costs), max(costs)
    memory = [r["bytes_per_block"] for r in runs if "bytes_per_block" in r]
    return [
        _bar(f"{source} allocator requests per second", plain, 3e6, at_least=True),
        _bar(f"the same with expandable segments, {source}", grown, 1e6, at_least=True),
        # The search is logarithmic: 1.7 times the comparisons. The rest is cache misses. A linear
        # search would take 100 times as long.
        _bar(
            f"cost of an allocator request, {many:,} free blocks to {few:,}",
            costs[many] / costs[few],
            5,
        ),
        _bar("bytes of memory per live block, worst case", max(memory), 200),
    ]


LLAMA_70B = "--set layers=80 --set width=8192 --set hidden=28672 --set heads=64"
ESTIMATES = {  # for examples/python/llama.py: options and bar in seconds
    "Llama 3 8B on 8 ranks": ("--fsdp 8 --ac selective", 15),
    "the largest batch of it": ("--fsdp 8 --ac full --max batch", 60),
    "Llama 3 70B on 64 ranks": (f"--fsdp 64 --ac full {LLAMA_70B}", 30),
}


def run_estimates() -> list[dict[str, object]]:
    """Wall time of `tidegauge estimate` from start to end."""
    print("running estimates ...", file=sys.stderr)
    target = Path(__file__).parent.parent / "examples" / "python" / "llama.py"
    command = [sys.executable, "-m", "tidegauge", "estimate", str(target)]
    rows = []
    for name, (options, bar) in ESTIMATES.items():
        begin = time.perf_counter()
        subprocess.run(
            [*command, "--mp", "bf16/fp32", "--device", "h100-80g", *options.split()],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        rows.append(_bar(f"seconds to estimate {name}", time.perf_counter() - begin, bar))
    # The maximum over all child processes so far.
    peak_bytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    return [*rows, _bar("bytes of memory to estimate, at most", peak_bytes, 3 * 2**30)]


def run_cpp(executable: Path) -> list[Ratio]:
    """The cost of the tracker in a libtorch program, which measures itself in the same way."""
    print(f"running {executable.name} ...", file=sys.stderr)
    output = subprocess.run(
        [executable, str(ROUNDS)], check=True, capture_output=True, text=True
    ).stdout
    return [Ratio(**row) for row in json.loads(output)]


def _bar(name: str, value: float, bar: float, *, at_least: bool = False) -> dict[str, object]:
    is_met = value >= bar if at_least else value <= bar
    return {"name": name, "value": value, "bar": bar, "at_least": at_least, "is_met": is_met}


def render(ratios: list[Ratio], core: list[dict[str, object]]) -> str:
    lines = []
    for row in core:
        sign = ">=" if row["at_least"] else "<="
        verdict = "met" if row["is_met"] else "MISSED"
        lines.append(f"{row['name']}: {row['value']:,.4g} (bar {sign} {row['bar']:,g}: {verdict})")
    case = None
    for ratio in ratios:
        if ratio.case != case:
            case = ratio.case
            lines += [
                "",
                f"{case}: {ratio.plain_us:,.0f} us a step without a tracker, "
                f"spread {ratio.spread:.1%}",
            ]
        bar = "" if ratio.bar is None else f"  (bar {ratio.bar:g}: {_verdict(ratio)})"
        lines.append(f"  {ratio.variant:28} {ratio.ratio:6.2f}x{bar}")
    return "\n".join(lines)


def _verdict(ratio: Ratio) -> str:
    return "met" if ratio.is_met else "MISSED"


def _measure_again(names: Sequence[str]) -> None:
    """Replaces the ratios and bars of these cases in the results, and adds new ones."""
    ratios, bars = run_cases(names)
    results = json.loads(RESULTS.read_text())
    for row in (ratio.to_json() for ratio in ratios):
        _replace(results["ratios"], row, "case", "variant")
    for row in bars:
        _replace(results["core"], row, "name")
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")
    print(render(ratios, bars))


def _replace(rows: list[dict[str, object]], row: dict[str, object], *key: str) -> None:
    for position, each in enumerate(rows):
        if all(each[name] == row[name] for name in key):
            rows[position] = row
            return
    rows.append(row)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", action="append", help="only cases/CASE.py; keeps other results")
    parser.add_argument("--core-bench", type=Path, help="the core_bench executable")
    parser.add_argument("--cpp-bench", type=Path, help="mem_tracker_bench")
    parser.add_argument("--record-steps", type=Path, help="makes large traces")
    arguments = parser.parse_args()
    if arguments.case:
        _measure_again(arguments.case)
        return
    if not (arguments.core_bench and arguments.cpp_bench and arguments.record_steps):
        parser.error("without --case, all executables are needed (make bench names them)")
    core = run_estimates() + run_core(arguments.core_bench)
    print("running reports ...", file=sys.stderr)
    core += [
        _bar(name, ratio, bar, at_least=True)
        for name, ratio, bar in measure_reports(arguments.record_steps)
    ]
    ratios, bars = run_cases()
    core += bars
    ratios += run_cpp(arguments.cpp_bench)
    results = {
        "method": f"thread CPU time, one torch thread, {ROUNDS} interleaved rounds, median ratio",
        "torch": torch.__version__,
        "cores": os.cpu_count(),
        "core": core,
        "ratios": [ratio.to_json() for ratio in ratios],
    }
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")
    print(render(ratios, core))
    print(f"\nwritten to benchmarks/{RESULTS.name}")


if __name__ == "__main__":
    main()
