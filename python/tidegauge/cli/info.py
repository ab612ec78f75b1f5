# SPDX-License-Identifier: BSD-3-Clause
"""`tidegauge info run.tide`: metadata of a trace, and whether it is complete.

`tidegauge info --self` describes the installation instead.
"""

from __future__ import annotations

import argparse
import dataclasses
import platform

from tidegauge._build_info import __version__, cmake_prefix_path
from tidegauge._torch.compat import BUILD_TYPE, BUILT_FOR, check_torch_version, find_torch_version
from tidegauge._util.formatting import render_duration
from tidegauge.cli.common import (
    EXIT_DONE,
    UsageError,
    add_output,
    read_trace,
    render_bytes,
    to_json,
    write_result,
)
from tidegauge.errors import TorchError
from tidegauge.report.holders import HOLDERS
from tidegauge.report.summary import Summary
from tidegauge.report.text import describe_health, join_lines, name_device, wrap

NAME = "info"
HELP = "show the metadata of a trace and check that it is complete"
EXAMPLES = """\
  tidegauge info train.tide
  tidegauge info train.tide --json | jq .health
  tidegauge info --self
"""

_INDENT = 16


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("trace", metavar="FILE", nargs="?", help="trace from `tidegauge run`")
    parser.add_argument(
        "--self",
        action="store_true",
        dest="is_self",
        help="show the version of tidegauge, how it was built, and which torch it finds",
    )
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    if args.is_self == (args.trace is not None):
        raise UsageError("expected a trace or --self")
    if args.is_self:
        installed = read_self()
        write_result(args, to_json(installed) if args.json else render_self(installed))
        return EXIT_DONE
    quiet = argparse.Namespace(**{**vars(args), "quiet": True})  # health is part of the result
    summary = read_trace(quiet, args.trace)
    if args.json:
        facts = dataclasses.asdict(dataclasses.replace(summary, peaks=(), steps=(), growth=()))
        for name in ("peaks", "steps", "end", "growth"):
            del facts[name]
        facts["health"]["is_good"] = summary.health.is_good
        write_result(args, to_json(facts))
    else:
        write_result(args, render_info(summary))
    return EXIT_DONE


def read_self() -> dict[str, str | None]:
    """Facts about this installation. `problem`: why only commands that need no torch work."""
    problem = None
    try:
        check_torch_version()
    except TorchError as error:
        problem = str(error)
    return {
        "version": __version__,
        "built_for_torch": BUILT_FOR or None,
        "build_type": BUILD_TYPE,
        "torch": find_torch_version(),
        "problem": problem,
        "python": platform.python_version(),
        "folder": cmake_prefix_path,
    }


def render_self(facts: dict[str, str | None]) -> str:
    built_for = facts["built_for_torch"]
    rows = {
        "tidegauge": facts["version"],
        "built for": f"torch {built_for}" if built_for else "no torch",
        "build type": facts["build_type"],
        "torch": facts["torch"] or "not found",
        "Python": facts["python"],
        "folder": facts["folder"],
    }
    lines = [f"{label:{_INDENT}}{value}" for label, value in rows.items()]
    if facts["problem"]:
        lines += ["", f"Reports only: {facts['problem']}"]  # one line: it has a command to copy
    return join_lines(lines)


def render_info(summary: Summary) -> str:
    facts = dict(summary.facts)
    lines = []

    def add(label: str, value: str) -> None:
        if value:
            lines.extend(wrap(f"{label:{_INDENT}}{value}", " " * _INDENT))

    add("file", f"{summary.path}, {render_bytes(summary.file_bytes)}")
    add("command", facts.pop("command", ""))
    add("host", f"{facts.pop('host', '')}, process {facts.pop('pid', '?')}")
    facts.pop("started_ns", None)
    if summary.world_size > 1:
        add("rank", f"{summary.rank} of {summary.world_size}")
    add("started", facts.pop("started", ""))
    add("ended", facts.pop("ended", ""))
    add("duration", render_duration(summary.duration_ns))
    add("torch", facts.pop("torch_version", ""))
    add("tidegauge", facts.pop("tidegauge_version", ""))
    for known in ("rank", "world_size", "lost_events", HOLDERS):
        facts.pop(known, None)
    for name, value in sorted(facts.items()):
        add(name, value)
    add("events", f"{summary.event_count:,}")
    add("storages", f"{summary.storage_count:,}")
    add("modules", f"{summary.module_count:,}")
    add("steps", f"{summary.step_count:,} ({summary.optimizer_step_count:,} optimizer steps)")
    peaks = (f"{render_bytes(p.total_bytes)} on {name_device(p.device)}" for p in summary.peaks)
    add("peak", "; ".join(peaks))
    sentences = describe_health(summary)
    add("health", " ".join(sentences) if sentences else "good (complete, no lost events)")
    return join_lines(lines)
