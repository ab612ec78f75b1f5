# SPDX-License-Identifier: BSD-3-Clause
"""Generates the outputs and figures in README.md, docs/ and src/capture/fast/README.md.

Replaces each block between `<!-- begin: NAME -->` and `<!-- end -->` by the output of NAME below.
Run it after `make build` and `make bench`: `.venv/bin/python tools/update_readme.py [NAME...]`, by
default for all blocks. `costs`, `speeds`, `gains` and `rehearsals` only read the results of
benchmarks.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

REPO = Path(__file__).parent.parent
DOCUMENTS = (
    "README.md",
    "docs/performance.md",
    "docs/plan.md",
    "docs/python.md",
    "docs/rehearse.md",
    "src/capture/fast/README.md",
)
BLOCK = re.compile(r"(<!-- begin: ([\w.]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def example(name: str) -> str:
    script = REPO / "examples" / "python" / name
    output = subprocess.run([sys.executable, script], check=True, capture_output=True, text=True)
    return f"```\n{output.stdout.rstrip()}\n```\n"


def run_example(*commands: str) -> str:
    """The output of the last command, in a folder with the examples, without times."""
    with tempfile.TemporaryDirectory() as folder:
        for script in (REPO / "examples" / "python").glob("*.py"):
            shutil.copy(script, folder)
        for command in commands:
            output = subprocess.run(
                [sys.executable, "-m", "tidegauge", *command.split()],
                cwd=folder,
                check=False,  # a limit may be exceeded on purpose
                capture_output=True,
                text=True,
            )
            if output.returncode not in (0, 3):
                sys.exit(f"{command}: {output.stderr}")
    return re.sub(r"(steps?) in [\d.]+ s", r"\1", output.stdout.rstrip())


def show_sections(text: str, *titles: str) -> str:
    """The first section, and those whose first line begins with one of the titles."""
    first, *others = text.split("\n\n")
    lines = [line for line in first.splitlines() if " -m tidegauge " not in line]  # no command
    kept = [each for each in others if each.startswith(titles)]
    kept = [re.sub(r"\n    /\S+ .*", "", each) for each in kept]  # no folders of this machine
    return "\n".join(["```", "\n\n".join(["\n".join(lines), *kept]), "```", ""])


def estimate() -> str:
    options = "--fsdp 8 --mp bf16/fp32 --ac selective --device h100-80g"
    text = run_example(f"estimate llama.py {options}")
    return show_sections(text, "Fits", "Device memory")


def plan() -> str:
    options = "--fsdp 8 --mp bf16/fp32 --device h100-80g --set batch=2"
    text = run_example(f"plan llama.py {options}")
    return show_sections(text, "Fits", " ", "no simulated", "blocks")


def report() -> str:
    text = run_example("run -q train.py", "report train.tide --top 4")
    return show_sections(text, "Peak on", "Modules", "Lines")


def leaks() -> str:
    text = run_example("run -q leak.py", "report leak.tide --leaks --top 1")
    return show_sections(text, "Grows")


def diff() -> str:
    text = run_example(
        "run -q train.py", "run -q -o more.tide train.py --layers 4", "diff train.tide more.tide"
    )
    return show_sections(text, "Peak")


def rehearsal() -> str:
    """The notes of `tidegauge rehearse` for the example, and what the script prints."""
    script = REPO / "examples" / "python" / "rehearse" / "fsdp.py"
    with tempfile.TemporaryDirectory() as folder:
        output = subprocess.run(
            [sys.executable, "-m", "tidegauge", "rehearse", "--gpus", "8", script],
            cwd=folder,
            check=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    lines = [line for line in output.stdout.splitlines() if "building the stand-in" not in line]
    first = next(index for index, line in enumerate(lines) if "peak on cuda" in line)
    printed = [line for line in lines[:first] if line.startswith("step")]
    return "\n".join(["```", *printed, *lines[first:], "```", ""])


SIMULATED = "simulated"
"""the variant without a tracker"""
LACKS_PATH = re.compile("without (?:the )?(.+)")
"""variants that lack one fast path, in the C++ benchmark"""


def read_results() -> dict[str, Any]:
    results: dict[str, Any] = json.loads((REPO / "benchmarks" / "results.json").read_text())
    return results


def costs() -> str:
    results = read_results()
    rows = [
        "| case | variant | CPU time relative to no tracker | difference of two equal runs |",
        "|---|---|---|---|",
    ]
    rows += [
        f"| {r['case']} | {r['variant']} | {r['ratio']:.2f}x | {r['spread']:.1%} |"
        for r in results["ratios"]
        if r["variant"] != SIMULATED and not LACKS_PATH.fullmatch(r["variant"])
    ]
    return "\n".join([*rows, "", f"({results['method']}.)", ""])


def gains() -> str:
    """What each fast path saves, in percentage points of an untracked step."""
    ratios = read_results()["ratios"]
    lacking = [r for r in ratios if LACKS_PATH.fullmatch(r["variant"])]
    (case,) = {r["case"] for r in lacking}
    (tracked,) = (r for r in ratios if r["case"] == case and r["variant"] == "tidegauge")
    rows = ["| path | gain |", "|---|---:|"]
    for r in lacking:
        name = LACKS_PATH.sub(r"\1", r["variant"])
        rows.append(f"| {name} | {100 * (r['ratio'] - tracked['ratio']):.1f} |")
    note = f"({case}; two equal runs differ by {100 * tracked['spread']:.1f}.)"
    return "\n".join([*rows, "", note, ""])


def speeds() -> str:
    results = read_results()
    rows = ["| steady step | FakeTensorMode | simulated | speedup |", "|---|---|---|---|"]
    for r in results["ratios"]:
        if r["variant"] == SIMULATED:
            case = r["case"].partition(", to FakeTensorMode")[0]
            fake, ratio = r["plain_us"] / 1e6, r["ratio"]
            rows.append(f"| {case} | {fake:.2f} s | {fake * ratio:.3f} s | {1 / ratio:.0f} |")
    rows += [
        f"| {r['name'].removeprefix('seconds of a step of ')} | - | {r['value']:.1f} s | - |"
        for r in results["core"]
        if r["name"].startswith("seconds of a step of ")
    ]
    return "\n".join([*rows, ""])


def rehearsals() -> str:
    """Three steps of one rank of large models, on the stand-in for CUDA."""
    rows = ["| job | CPU time | memory of the process |", "|---|---:|---:|"]
    core = {row["name"]: row["value"] for row in read_results()["core"]}
    what = "CPU seconds to rehearse "
    for job in (name.removeprefix(what) for name in core if name.startswith(what)):
        size_bytes = core[f"bytes of memory to rehearse {job}"]
        rows.append(f"| {job} | {core[what + job]:.0f} s | {size_bytes / 2**20:,.0f} MiB |")
    return "\n".join([*rows, ""])


GENERATORS = {
    "estimate": estimate,
    "plan": plan,
    "timeline": lambda: example("mod_tracker_timeline.py"),
    "memory": lambda: example("mem_tracker.py"),
    "rehearsal": rehearsal,
    "rehearsals": rehearsals,
    "report": report,
    "leaks": leaks,
    "diff": diff,
    "costs": costs,
    "gains": gains,
    "simulation": lambda: example("simulate.py"),
    "speeds": speeds,
}


def main(names: list[str]) -> None:
    def replace(block: re.Match[str]) -> str:
        if names and block[2] not in names:
            return block[0]
        return block[1] + GENERATORS[block[2]]() + block[3]

    for document in DOCUMENTS:
        path = REPO / document
        path.write_text(BLOCK.sub(replace, path.read_text()))


if __name__ == "__main__":
    main(sys.argv[1:])
