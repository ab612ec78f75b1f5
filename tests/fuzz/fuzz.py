#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""fuzz.py [--seconds N] [--seed N] [TARGET ...]: runs commands on mutated files, and the programs
of targets/, which libFuzzer guides by the code that they reach (tools/build_fuzzers.sh).

A finding is a crash, a hang, an internal error, or anything but one clean line. The file that
caused it stays in build/fuzz. Without targets, runs all of them for N seconds each.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import pickle
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

REPO = Path(__file__).parents[2]
CORPUS = Path(__file__).parent / "corpus"
sys.path.insert(0, str(REPO / "tests" / "python" / "support"))

from mutators import (  # noqa: E402
    mutate_config,
    mutate_snapshot,
    mutate_text,
    mutate_trace,
    write_snapshot,
)
from sealing import edit_trace  # noqa: E402
from snapshots import deferred_frees, three_segments  # noqa: E402
from tidegauge.cli.main import main  # noqa: E402
from traces import record_training  # noqa: E402

TRACES = sorted((REPO / "tests" / "golden" / "traces").glob("*.tide"))
PROGRAMS = REPO / "build" / "fuzzers"
LONGEST_SECONDS = 20  # for one command
Command = list[str] | Path  # arguments, or the config of a model that is loaded
Commands = list[Command]


def _seed_trace(folder: Path, draw: random.Random) -> Path:
    path = folder / "bad.tide"
    shutil.copy(draw.choice(TRACES), path)
    return path


def flip_bit(path: Path, text: bytes, draw: random.Random) -> None:
    """Flips a bit of this text in a file, which stays as it is otherwise."""
    content = bytearray(path.read_bytes())
    if (begin := content.find(text)) >= 0:
        content[begin + draw.randrange(len(text))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)


def fuzz_trace(folder: Path, draw: random.Random) -> Commands:
    path = _seed_trace(folder, draw)
    if draw.randrange(4) == 0:
        script = draw.choice(sorted((CORPUS / "trace").glob("*.sql")))
        with edit_trace(path) as database:
            database.executescript(script.read_text())
    if draw.randrange(8):
        mutate_trace(path, draw)
    else:
        text = draw.choice(sorted((CORPUS / "flipped").iterdir())).read_bytes()
        flip_bit(path, text, draw)
    out = str(folder / "out")
    return [
        ["report", str(path)],
        ["report", str(path), "--html", f"{out}.html", "--force"],
        ["info", str(path)],
        ["merge", str(path)],
        ["diff", str(path), str(TRACES[0])],
        ["replay", str(path)],
        ["export", str(path), "--to", "memory-viz", "-o", out, "--force"],
        ["export", str(path), "--to", "perfetto", "-o", out, "--force"],
        ["export", str(path), "--to", "flamegraph", "-o", out, "--force"],
    ]


def fuzz_snapshot(folder: Path, draw: random.Random) -> Commands:
    files = sorted((CORPUS / "snapshot").iterdir())
    path = folder / draw.choice(("bad.pickle", "bad.json"))
    if draw.randrange(3) == 0:
        source = draw.choice(files)
        path = folder / f"bad{source.suffix}"
        content = bytearray(source.read_bytes())
        for _ in range(draw.randrange(4)):
            content[draw.randrange(len(content))] = draw.randrange(256)
        path.write_bytes(content)
    else:
        snapshot = draw.choice((three_segments, deferred_frees))()
        write_snapshot(path, mutate_snapshot(snapshot, draw))
    return [["replay", str(path)], ["replay", str(path), "--device-memory", "1GiB"]]


def fuzz_alloc_conf(folder: Path, draw: random.Random) -> Commands:
    path = folder / "snapshot.pickle"
    path.write_bytes(pickle.dumps(three_segments()))
    seed = draw.choice(sorted((CORPUS / "alloc_conf").iterdir())).read_text().strip()
    return [["replay", str(path), "--alloc-conf", mutate_text(seed, draw).replace("\0", "")]]


def fuzz_budget(folder: Path, draw: random.Random) -> Commands:
    path = folder / "budget.toml"
    seed = draw.choice(sorted((CORPUS / "budget").iterdir())).read_text()
    path.write_text(mutate_text(seed, draw), errors="replace")
    return [["diff", str(TRACES[0]), str(TRACES[0]), "--budget", str(path)]]


def fuzz_config(folder: Path, draw: random.Random) -> Commands:
    path = folder / "config.json"
    seed = draw.choice(sorted((CORPUS / "config").iterdir())).read_text()
    if draw.randrange(4) and seed.startswith("{"):
        path.write_text(mutate_config(seed, draw))
    else:
        path.write_text(mutate_text(seed, draw), errors="replace")
    return [path]


TARGETS: dict[str, Callable[[Path, random.Random], Commands]] = {
    "trace": fuzz_trace,
    "snapshot": fuzz_snapshot,
    "alloc-conf": fuzz_alloc_conf,
    "budget": fuzz_budget,
    "config": fuzz_config,
}


def _time_is_up(*_: Any) -> None:
    raise TimeoutError(f"no end after {LONGEST_SECONDS} s")


def execute(command: Command) -> int:
    """Returns the exit code. A config is loaded as `estimate` does; models take too long to run."""
    if not isinstance(command, Path):
        return main([*command, "-q"])
    from tidegauge.estimation import ContractError, load_contract

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # those of transformers
            load_contract(command)
    except ContractError as error:
        print(f"tidegauge: {str(error)[:480]}".replace("\n", " "), file=sys.stderr)
        return 1
    return 0


def find_fault(command: Command) -> str | None:
    """What is wrong with the outcome of a command; None if nothing is."""
    out, err = io.TextIOWrapper(io.BytesIO()), io.StringIO()
    signal.signal(signal.SIGALRM, _time_is_up)
    signal.alarm(LONGEST_SECONDS)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = execute(command)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
    text = err.getvalue()
    if code not in (0, 1, 2, 3):
        return f"exit code {code}: {text}"
    if "internal error" in text or "no end after" in text:
        return text
    if code == 1 and (text.count("\n") != 1 or len(text) > 501):
        return f"not one short line: {text[:1000]}"
    return None


def fuzz(target: str, seconds: float, seed: int, keep: Path) -> tuple[int, list[str]]:
    """Returns the number of commands that ran, and the findings."""
    os.environ.pop("TIDEGAUGE_DEBUG", None)
    draw = random.Random(f"{target} {seed}")
    end = time.monotonic() + seconds
    count, findings = 0, []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        while time.monotonic() < end or not count:
            for command in TARGETS[target](folder, draw):
                fault = find_fault(command)
                count += 1
                if fault is not None:
                    keep.mkdir(parents=True, exist_ok=True)
                    kept = keep / f"{target}-{seed}-{count}"
                    shutil.copytree(folder, kept, dirs_exist_ok=True)
                    findings.append(f"{str(command)[:300]} ({kept}): {fault}")
    return count, findings


def report(what: str, findings: list[str], seed: int) -> bool:
    """Prints a line for a target, and its findings. True if there are any."""
    print(f"{what}, {len(findings)} findings (seed {seed})", flush=True)
    for finding in findings[:20]:
        print(f"  {finding}")
    return bool(findings)


# The seeds of the programs; the others begin with nothing.
SEEDS: dict[str, list[Path]] = {
    "alloc_conf": sorted((CORPUS / "alloc_conf").iterdir()),
    "plain_pickle": sorted((CORPUS / "snapshot").glob("*.pickle")),
    "recording": sorted((CORPUS / "recording").iterdir()),
    "trace_file": TRACES,
}


def find_programs() -> dict[str, Path]:
    """By name. None if they were not built."""
    found = sorted(PROGRAMS.glob("fuzz_*"))
    return {path.name.removeprefix("fuzz_"): path for path in found if os.access(path, os.X_OK)}


def run_program(name: str, seconds: float, seed: int, keep: Path) -> tuple[str, list[str]]:
    """Returns what libFuzzer reached, and the findings. Inputs that reach new code are kept for
    the next run.
    """
    corpus = keep / "corpus" / name
    corpus.mkdir(parents=True, exist_ok=True)
    for source in SEEDS.get(name, []):
        shutil.copy(source, corpus)
    if name == "trace_file" and not (corpus / "new.tide").exists():
        record_training(corpus / "new.tide", steps=1)
    with tempfile.TemporaryDirectory() as folder:
        ended = subprocess.run(
            [
                str(find_programs()[name]),
                f"-max_total_time={max(int(seconds), 1)}",
                f"-seed={seed % (1 << 32)}",
                f"-timeout={LONGEST_SECONDS}",
                "-rss_limit_mb=3000",
                "-max_len=200000",
                "-print_final_stats=1",
                f"-artifact_prefix={keep}/{name}-",
                str(corpus),
            ],
            env={**os.environ, "TMPDIR": folder, "UBSAN_OPTIONS": "print_stacktrace=1"},
            capture_output=True,
            text=True,
            errors="replace",
        )
    text = ended.stderr
    covered = re.findall(r"cov: (\d+) ft: (\d+)", text)
    runs = re.search(r"number_of_executed_units: (\d+)", text)
    reached = (
        f"{int(runs[1]) if runs else 0:,} executions, {covered[-1][0] if covered else 0} edges"
    )
    if ended.returncode == 0:
        return reached, []
    lines = [
        line for line in text.splitlines() if re.search("ERROR|SUMMARY|finding|Test unit", line)
    ]
    return reached, ["; ".join(lines)[:1000] or text[-1000:]]


def run() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    args = parser.parse_args()
    programs = find_programs()
    if unknown := [name for name in args.targets if name not in {*TARGETS, *programs}]:
        parser.error(f"unknown target {unknown[0]} (expected {', '.join([*TARGETS, *programs])})")
    keep = REPO / "build" / "fuzz"
    failed = False
    for name in args.targets or programs:
        if name in programs:
            reached, findings = run_program(name, args.seconds, args.seed, keep)
            failed = report(f"{name}: {reached}", findings, args.seed) or failed
    if "config" in (args.targets or TARGETS):  # libraries are not part of the limit
        import tidegauge.estimation  # noqa: F401
        import transformers  # noqa: F401
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (3 << 30), resource.RLIM_INFINITY))
    for name in args.targets or TARGETS:
        if name in TARGETS:
            count, findings = fuzz(name, args.seconds, args.seed, keep)
            failed = report(f"{name}: {count:,} commands", findings, args.seed) or failed
    return int(failed)


if __name__ == "__main__":
    sys.exit(run())
