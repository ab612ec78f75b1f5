#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Builds tidegauge for several versions of torch, runs the main tests on each, and writes
docs/torch-versions.md.

    make matrix                                   all versions, one after another
    tools/matrix.py 2.15.0                        one version; the results of the others stay
    tools/matrix.py --env 2.15.0=FOLDER 2.15.0    in an environment that exists
    tools/matrix.py --keep-overhead ...           on a busy machine
    tools/matrix.py --write                       only the document, from the results

A version that cannot be built gets a row that says why. Results are in
benchmarks/torch_versions.json. The exit code is 1 if a test failed or nothing could be built.
`make matrix MATRIX="..."` passes arguments on.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from markdown_text import wrap_prose

REPO = Path(__file__).resolve().parent.parent
RESULTS = REPO / "benchmarks" / "torch_versions.json"
DOCUMENT = REPO / "docs" / "torch-versions.md"
VERSIONS = ("2.10.0", "2.11.0", "2.12.1", "2.13.0+cpu", "2.13.0+cu130", "2.14.1", "2.15.0")
SUITES = {
    "mod": ["trackers/mod"],
    "mem": ["trackers/mem"],
    "fsdp": ["trackers/fsdp"],
    "simulate": ["simulation", "_torch"],
    "estimate": ["estimation"],
    "planning": ["planning"],
    "cli": ["cli", "report", "allocator"],
}
SUITE_SECONDS = 1800
BUILD_SECONDS = 5400
MOST_NAMES = 10
LONG_TESTS = "long; "  # how the reason to skip them begins
# The overhead of MemTracker, as JSON.
OVERHEAD = """
import json, sys
import torch
sys.path.insert(0, "benchmarks")
from cases import mem_tracker
torch.set_num_threads(1)
rows = [*mem_tracker.tiny_mlp(), *mem_tracker.llama()]
print(json.dumps([[r.ratio, r.spread] for r in rows if r.variant == mem_tracker.OURS]))
"""

Result = dict[str, Any]


def say(text: str) -> None:
    print(f"matrix: {text}", file=sys.stderr, flush=True)


class Version:
    """One version of torch, with its environment and its package."""

    def __init__(self, name: str, env: str | None) -> None:
        self.name = name
        self.folder = REPO / "build" / f"torch-{name}"
        self._env = Path(env).resolve() if env else REPO / "build" / "envs" / f"torch-{name}"
        self._package = self.folder / "matrix_package"
        self._variables = {**os.environ, **({"TORCH_ENV": str(self._env)} if env else {})}

    def build(self) -> str | None:
        """Why it failed; None if it did not."""
        self.folder.mkdir(parents=True, exist_ok=True)
        log = self.folder / "matrix_build.log"
        with log.open("w") as file:
            try:
                ended = subprocess.run(
                    ["make", "build", f"TORCH={self.name}"],
                    cwd=REPO,
                    env=self._variables,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    timeout=BUILD_SECONDS,
                )
            except subprocess.TimeoutExpired:
                return f"the build took more than {BUILD_SECONDS // 60} minutes"
        if ended.returncode == 0:
            self._copy_package()
            return None
        lines = log.read_text(errors="replace").splitlines()
        errors = [line for line in lines if "error" in line.lower() or "tidegauge:" in line]
        return " ".join((errors or lines or ["no output"])[0].split())[:300]

    def _copy_package(self) -> None:
        """The package has links to the sources, which an editor may change while the tests run."""
        shutil.rmtree(self._package, ignore_errors=True)
        shutil.copytree(self.folder / "package", self._package)

    def run(self, *arguments: str, seconds: int) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self._env / "bin" / "python"), *arguments],
            cwd=REPO,
            env={**self._variables, "PYTHONPATH": str(self._package), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=seconds,
        )

    def ask(self, *script: str) -> Any:
        """What a script (`-c TEXT`, or a file) printed as JSON; None if it failed."""
        try:
            ended = self.run(*script, seconds=900)
            return json.loads(ended.stdout.splitlines()[-1])
        except (subprocess.TimeoutExpired, IndexError, ValueError):
            return None

    def test(self, suite: str) -> Result:
        report = self.folder / f"matrix_{suite}.xml"
        report.unlink(missing_ok=True)
        paths = [f"tests/python/{path}" for path in SUITES[suite]]
        begin = time.monotonic()
        try:
            ended = self.run(
                *("-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", *paths),
                "--continue-on-collection-errors",
                f"--junitxml={report}",
                seconds=SUITE_SECONDS,
            )
            (self.folder / f"matrix_{suite}.log").write_text(ended.stdout + ended.stderr)
            error = f"pytest ended with {ended.returncode}"
        except subprocess.TimeoutExpired:
            error = f"took more than {SUITE_SECONDS // 60} minutes"
        result = read_report(report) if report.exists() else {"error": error}
        return {**result, **find_sources(), "seconds": round(time.monotonic() - begin)}


def find_sources() -> Result:
    """Which sources are tested, and when."""
    ask = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(ask, cwd=REPO, check=True, capture_output=True, text=True).stdout
    today = datetime.datetime.now(datetime.UTC).date()
    return {"commit": commit.strip(), "date": today.isoformat()}


def read_report(path: Path) -> Result:
    failed, counts = [], {"passed": 0, "failed": 0, "skipped": 0}
    reasons: dict[str, int] = {}
    for case in ElementTree.parse(path).iter("testcase"):
        kinds = {child.tag for child in case}
        if (skipped := case.find("skipped")) is not None:
            reason = str(skipped.get("message"))
            reasons[reason] = reasons.get(reason, 0) + 1
        if kinds & {"failure", "error"}:
            counts["failed"] += 1
            failed.append(f"{case.get('classname')}.{case.get('name')}")
        else:
            counts["skipped" if "skipped" in kinds else "passed"] += 1
    return {**counts, "failures": failed, "skips": reasons}


def measure(
    name: str, env: str | None, suites: list[str], before: Result, *, keeps_overhead: bool
) -> Iterator[Result]:
    """The result so far, after each part. Suites that are not run keep their result of `before`."""
    version = Version(name, env)
    say(f"{name}: building")
    begin = time.monotonic()
    if (problem := version.build()) is not None:
        say(f"{name}: {problem}")
        yield {"problem": problem}
        return
    result: Result = {
        "build_seconds": round(time.monotonic() - begin),
        "torch": version.ask("-c", "import json, torch; print(json.dumps(torch.__version__))"),
        "missing": version.ask("tools/probe_torch.py"),
        "suites": dict(before.get("suites", {})),
        "overhead": before.get("overhead"),
    }
    for suite in suites:
        result["suites"][suite] = version.test(suite)
        say(f"{name}: {suite} {render_suite(result['suites'][suite])}")
        yield result
    if not keeps_overhead:
        result["overhead"] = version.ask("-c", OVERHEAD)
        yield result


def read_results() -> dict[str, Result]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def has_failed(result: Result) -> bool:
    suites = result.get("suites", {}).values()
    return "problem" in result or any("error" in s or s["failed"] for s in suites)


def save(name: str, result: Result) -> None:
    results = read_results()  # another run may have added to it
    results[name] = result
    RESULTS.write_text(json.dumps(results, indent=2, sort_keys=True) + "\n")
    write_document()


def render_suite(suite: Result | None) -> str:
    if suite is None:
        return ""
    if "error" in suite:
        return str(suite["error"])
    failed = f", **{suite['failed']} failed**" if suite["failed"] else ""
    return f"{suite['passed']}{failed}"


def render_overhead(overhead: list[list[float]] | None) -> str:
    return "" if overhead is None else ", ".join(f"{ratio:.2f}" for ratio, _ in overhead)


def render_row(result: Result | None) -> list[str]:
    if result is None or "problem" in result:
        why = f"does not build: {result['problem']}" if result else "not run yet"
        return [*[""] * len(SUITES), why, "", ""]
    missing = result.get("missing")
    listed = "unknown" if missing is None else "; ".join(missing) or "nothing"
    suites = [render_suite(result["suites"].get(suite)) for suite in SUITES]
    return [*suites, listed, render_overhead(result.get("overhead")), render_sources(result)]


def render_sources(result: Result) -> str:
    """The commits of the suites and their days, the oldest first."""
    tested = {(suite["date"], suite["commit"]) for suite in result["suites"].values()}
    return "; ".join(f"{date} {commit}" for date, commit in sorted(tested))


def render_failures(name: str, result: Result) -> Iterator[str]:
    for suite, tests in result.get("suites", {}).items():
        if failures := tests.get("failures"):
            names = [each.rpartition("tests.python.")[2] for each in failures]
            more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
            yield f"- torch {name}, {suite}: " + ", ".join(names[:MOST_NAMES]) + more


def render_skips(name: str, result: Result) -> Iterator[str]:
    """Why tests were skipped, in all suites together."""
    counts: dict[str, int] = {}
    for tests in result.get("suites", {}).values():
        for reason, count in tests.get("skips", {}).items():
            if not reason.startswith(LONG_TESTS):
                counts[reason] = counts.get(reason, 0) + count
    if counts:
        listed = "; ".join(f"{reason} ({count})" for reason, count in sorted(counts.items()))
        yield f"- torch {name}: {listed}"


def render_table(results: dict[str, Result]) -> str:
    head = ["torch", *SUITES, "missing", "overhead", "tested"]
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * len(SUITES) + "---|---:|---|"]
    lines += [f"| {' | '.join([name, *render_row(results.get(name))])} |" for name in VERSIONS]
    for heading, render in (("Failed:", render_failures), ("Skipped:", render_skips)):
        listed = [line for name in VERSIONS for line in render(name, results.get(name, {}))]
        if listed:
            lines += ["", heading, *(wrap_prose(each) for each in listed)]
    return "\n".join([*lines, ""])


def write_document() -> None:
    begin, end = "<!-- begin: matrix -->\n", "<!-- end -->"
    text = DOCUMENT.read_text()
    before, _, rest = text.partition(begin)
    after = rest.partition(end)[2]
    DOCUMENT.write_text(before + begin + render_table(read_results()) + end + after)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("versions", nargs="*", default=VERSIONS, metavar="VERSION")
    parser.add_argument("--env", action="append", default=[], metavar="VERSION=FOLDER")
    parser.add_argument("--suite", action="append", choices=SUITES, help="by default all")
    parser.add_argument(
        "--keep-overhead", action="store_true", help="keep the overhead measured before"
    )
    parser.add_argument("--write", action="store_true", help="only write the document")
    args = parser.parse_args()
    if unknown := [name for name in args.versions if name not in VERSIONS]:
        parser.error(f"unknown version {unknown[0]} (expected one of {', '.join(VERSIONS)})")
    envs = dict(each.partition("=")[::2] for each in args.env)
    for name in () if args.write else args.versions:
        before = read_results().get(name, {})
        for result in measure(
            name,
            envs.get(name),
            args.suite or list(SUITES),
            before,
            keeps_overhead=args.keep_overhead,
        ):
            save(name, result)
    write_document()
    results = read_results()
    return int(not args.write and any(has_failed(results[name]) for name in args.versions))


if __name__ == "__main__":
    sys.exit(main())
