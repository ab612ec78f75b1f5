# SPDX-License-Identifier: BSD-3-Clause
"""`tidegauge replay run.tide`: estimated device memory, layer by layer, and other settings."""

from __future__ import annotations

import argparse
import dataclasses
import os
from typing import TYPE_CHECKING, Any

from tidegauge._util.files import read_start
from tidegauge._util.formatting import render_bytes, render_change
from tidegauge.cli.common import (
    EXIT_DOES_NOT_FIT,
    EXIT_DONE,
    UsageError,
    parse_assumptions,
    to_json,
    write_result,
)
from tidegauge.errors import FormatError
from tidegauge.report.text import join_sections, render_layers, render_verdict, wrap

if TYPE_CHECKING:
    from tidegauge.allocator import DeviceMemory, DeviceModel

_LABEL = 36


def is_trace(path: str) -> bool:
    """Checks the first bytes. False for an unreadable file: its reader reports the error."""
    try:
        return read_start(path, 16) == b"SQLite format 3\0"
    except (OSError, FormatError):
        return False


def run(args: argparse.Namespace, device: DeviceModel | None) -> int:
    from tidegauge.allocator import replay_trace

    if args.recorded_conf is not None:
        raise UsageError("--recorded-conf requires a snapshot; a trace has no allocator settings")
    if args.deferred is not None:
        raise UsageError("--deferred requires a snapshot; frees in a trace wait for no stream")
    try:
        memory = replay_trace(
            args.file,
            alloc_confs=args.alloc_conf,
            device=device,
            traced_device=args.traced_device,
            assumptions=parse_assumptions(args.assume),
            tie=args.tie,
        )
    except FormatError:
        raise
    except ValueError as error:
        raise UsageError(error) from None
    write_result(args, to_json(_to_json(memory)) if args.json else render(memory))
    return EXIT_DOES_NOT_FIT if memory.verdict.name == "does not fit" else EXIT_DONE


def _to_json(memory: DeviceMemory) -> dict[str, Any]:
    """The verdict has the members that it has in an estimate."""
    verdict = memory.verdict
    names = ("needed_bytes", "low_bytes", "high_bytes", "margin_bytes")
    members = {name: getattr(verdict, name) for name in names}
    return {**dataclasses.asdict(memory), "verdict": verdict.name, **members}


def render(memory: DeviceMemory) -> str:
    """The text output, at most 80 columns wide."""
    name = os.path.basename(memory.trace)
    head = wrap(
        f"{name}: {memory.requests:,} requests and frees on {memory.traced_device}, "
        f"{memory.alloc_conf or 'default settings'}"
    )
    return join_sections(
        [head, render_layers(memory), render_verdict(memory.verdict), _settings(memory)]
    )


def _settings(memory: DeviceMemory) -> list[str]:
    if not memory.settings:
        return []
    lines = [f"{'Settings':{_LABEL}}{'reserved':>12}{'unused':>9}{'change':>14}"]
    first = memory.figures
    rows = [(memory.alloc_conf, first, "")]
    rows += [
        (row.alloc_conf, row.figures, render_change(-row.saved_bytes)) for row in memory.settings
    ]
    for alloc_conf, figures, change in rows:
        reserved = render_bytes(figures.peak_reserved_bytes)
        label = alloc_conf or "default"
        if len(label) > _LABEL:
            lines += wrap(label)
            label = ""
        lines.append(f"{label:{_LABEL}}{reserved:>12}{figures.fragmentation:>9.1%}{change:>14}")
    return lines
