# SPDX-License-Identifier: BSD-3-Clause
"""`tidegauge export run.tide --to FORMAT`: converts a trace for other tools."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO

from tidegauge._util.formatting import is_terminal, make_printable
from tidegauge.cli.common import (
    EXIT_DONE,
    UsageError,
    add_alloc_conf,
    add_file,
    open_result,
    read_trace,
    show_progress,
)
from tidegauge.errors import FormatError
from tidegauge.export.flamegraph import OWNERS
from tidegauge.export.tables import TABLES

if TYPE_CHECKING:
    from tidegauge.report import Summary

NAME = "export"
HELP = "convert a trace for memory_viz, Perfetto, spreadsheets or a flame graph"
EXAMPLES = """\
  tidegauge export train.tide --to memory-viz -o train.pickle   (or train.json)
  tidegauge export train.rank*.tide --to perfetto -o train.json
  tidegauge export train.tide --to flamegraph | flamegraph.pl > train.svg
  tidegauge export train.tide --to flamegraph --by line
  tidegauge export train.tide --to csv -o tables                (a folder)
  tidegauge export train.tide --to csv --table modules
"""
_FORMATS = ("memory-viz", "perfetto", "csv", "json", "flamegraph")
# Options that are valid for one format only.
_OPTIONS = {
    "alloc_conf": "memory-viz",
    "traced_device": "memory-viz",
    "table": "csv",
    "at": "flamegraph",
    "by": "flamegraph",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "traces", nargs="+", metavar="FILE", help="a trace, or the traces of all ranks of one run"
    )
    parser.add_argument("--to", required=True, choices=_FORMATS, help="output format")
    parser.add_argument(
        "--table", choices=tuple(TABLES), help="csv: write one table instead of a folder"
    )
    parser.add_argument(
        "--at",
        metavar="MOMENT",
        help="flamegraph: peak (default), end, step:N (the peak of step N), or an event number",
    )
    parser.add_argument(
        "--by",
        choices=OWNERS,
        help="flamegraph: by module (default), or by line of the program",
    )
    add_alloc_conf(parser, "memory-viz: settings of the simulated allocator")
    parser.add_argument(
        "--traced-device",
        metavar="DEVICE",
        help="memory-viz: export the storages on this device, e.g. cuda:0",
    )
    add_file(parser)


def run(args: argparse.Namespace) -> int:
    for option, of_format in _OPTIONS.items():
        if getattr(args, option) is not None and args.to != of_format:
            raise UsageError(f"--{option.replace('_', '-')} requires --to {of_format}")
    if args.to == "csv" and not args.table and not args.output:
        raise UsageError("csv needs -o FOLDER for all tables, or --table for one of them")
    if args.to == "memory-viz" and not args.output and is_terminal(sys.stdout):
        raise UsageError("memory-viz is binary; write it to a file with -o FILE")
    summaries = [read_trace(args, path) for path in args.traces]
    try:
        if args.to == "csv" and not args.table:
            _write_folder(args, summaries)
        else:
            _write_file(args, summaries)
    except FormatError:
        raise
    except ValueError as error:
        raise UsageError(error) from None
    return EXIT_DONE


def _write_file(args: argparse.Namespace, summaries: list[Summary]) -> None:
    with show_progress(args, "exporting") as progress:
        if not args.output:
            _write(args, summaries, sys.stdout.buffer, progress)
            return
        with open_result(args, args.output) as file:
            _write(args, summaries, file, progress)


def _write(
    args: argparse.Namespace,
    summaries: list[Summary],
    file: BinaryIO,
    progress: Callable[[float], None] | None,
) -> None:
    from tidegauge import export

    match args.to:
        case "memory-viz":
            export.to_memory_viz(
                summaries,
                file,
                as_json=(args.output or "").endswith(".json"),
                alloc_conf=args.alloc_conf or "",
                traced_device=args.traced_device,
                progress=progress,
            )
        case "perfetto":
            export.to_perfetto(summaries, file, progress=progress)
        case "csv":
            _write_text(args, export.to_csv(summaries, args.table), file)
        case "json":
            file.write(f"{export.to_json(summaries)}\n".encode())
        case "flamegraph":
            text = export.to_flamegraph(
                summaries, at=args.at or "peak", by=args.by or "module", progress=progress
            )
            _write_text(args, text, file)


def _write_text(args: argparse.Namespace, text: str, file: BinaryIO) -> None:
    """Standard output may be a terminal, which names must not control; a file keeps them."""
    if not args.output:
        text = make_printable(text, keep="\r\n")
    file.write(text.encode())


def _write_folder(args: argparse.Namespace, summaries: list[Summary]) -> None:
    from tidegauge.export import to_csv

    os.makedirs(args.output, exist_ok=True)
    paths = {table: os.path.join(args.output, f"{table}.csv") for table in TABLES}
    if not args.force:  # all or none
        for path in filter(os.path.lexists, paths.values()):
            raise FileExistsError(
                f"{path} exists; choose another folder, or replace it with --force"
            )
    for table, path in paths.items():
        with open_result(args, path) as file:
            file.write(to_csv(summaries, table).encode())
