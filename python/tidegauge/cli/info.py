# SPDX-License-Identifier: BSD-3-Clause
"""`tidegauge info run.tide`: metadata of a trace, and whether it is complete."""

from __future__ import annotations

import argparse
import dataclasses

from tidegauge._util.formatting import render_duration
from tidegauge.cli.common import (
    EXIT_DONE,
    add_output,
    read_trace,
    render_bytes,
    to_json,
    write_result,
)
from tidegauge.report.summary import Summary
from tidegauge.report.text import describe_health, join_lines, name_device, wrap

NAME = "info"
HELP = "show the metadata of a trace and check that it is complete"
EXAMPLES = """\
  tidegauge info train.tide
  tidegauge info train.tide --json | jq .health
"""

_INDENT = 16


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("trace", metavar="FILE", help="trace from `tidegauge run`")
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    quiet = argparse.Namespace(**{**vars(args), "quiet": True})  # health is part of the result
    summary = read_trace(quiet, args.trace)
    if args.json:
        facts = dataclasses.asdict(dataclasses.replace(summary, peaks=(), steps=()))
        for name in ("peaks", "steps", "end"):
            del facts[name]
        facts["health"]["is_good"] = summary.health.is_good
        write_result(args, to_json(facts))
    else:
        write_result(args, render_info(summary))
    return EXIT_DONE


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
    for known in ("rank", "world_size", "lost_events"):
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
