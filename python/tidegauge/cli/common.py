# SPDX-License-Identifier: BSD-3-Clause
"""Shared by the commands: exit codes, sizes and devices, output files, reading a trace."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, BinaryIO

from tidegauge._util import formatting
from tidegauge._util.files import replace_file
from tidegauge._util.formatting import make_printable
from tidegauge._util.formatting import render_bytes as render_bytes

if TYPE_CHECKING:
    from tidegauge.allocator import Assumptions, DeviceModel
    from tidegauge.report import Summary
    from tidegauge.report.run import Run

Arguments = argparse._ActionsContainer  # a parser, or a group of one

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_DOES_NOT_FIT = 3
EXIT_INTERRUPTED = 130

_MAX_LINE = 500


class UsageError(Exception):
    """The arguments are invalid, contradict each other or do not suit the file."""


def parse_bytes(text: str) -> int:
    """Parses `40GiB`, `512 MiB` or `100 B`, for argparse. A number without a unit is refused."""
    size_bytes = formatting.parse_bytes(text)
    if size_bytes is not None and text.strip()[-1].isdigit():
        raise argparse.ArgumentTypeError(
            f"size '{text}' has no unit (expected e.g. {text.strip()}GiB)"
        )
    if size_bytes is None or not 0 < size_bytes < 1 << 62:
        raise argparse.ArgumentTypeError(f"invalid size '{text}' (expected e.g. 40GiB)")
    return size_bytes


def read_device(args: argparse.Namespace) -> DeviceModel | None:
    """The device of --device or --device-memory; None without these options."""
    from tidegauge.allocator import find_device, model_device

    if args.device and args.device_memory:
        raise UsageError("--device and --device-memory are mutually exclusive")
    if args.device_memory:
        return model_device(args.device_memory)
    try:
        return find_device(args.device) if args.device else None
    except ValueError as error:
        raise UsageError(error) from None


def add_device(parser: Arguments) -> None:
    """For commands that call `read_device`."""
    parser.add_argument(
        "--device", metavar="NAME", help="a device that `tidegauge devices` lists, e.g. h100-80g"
    )
    parser.add_argument(
        "--device-memory",
        type=parse_bytes,
        metavar="SIZE",
        help="memory of the device, if it is not in the list, e.g. 40GiB",
    )


def add_alloc_conf(parser: Arguments, purpose: str, note: str = "", **options: Any) -> None:
    parser.add_argument(
        "--alloc-conf",
        metavar="SETTINGS",
        help=f"{purpose}, written as in PYTORCH_CUDA_ALLOC_CONF{note}",
        **options,
    )


# The names of `--assume`, and the members of Assumptions that they set.
_ASSUMED = {
    "context": "context_bytes",
    "cublas": "cublas_workspace_bytes",
    "communication": "communication_bytes",
}


def add_assume(parser: Arguments, condition: str = "") -> None:
    """For commands that call `parse_assumptions`."""
    parser.add_argument(
        "--assume",
        action="append",
        default=[],
        metavar="NAME=SIZE",
        help=f"{condition}replace an assumed size. NAME: {', '.join(_ASSUMED)} (cublas: one "
        "workspace)",
    )


def parse_assumptions(texts: list[str]) -> Assumptions:
    """Our defaults with the values of --assume. 0 is allowed."""
    from tidegauge.allocator import Assumptions

    given: dict[str, int] = {}
    for text in texts:
        name, equals, size = text.partition("=")
        if not equals or name not in _ASSUMED:
            names = ", ".join(_ASSUMED)
            raise UsageError(
                f"invalid --assume '{text}' (expected NAME=SIZE with NAME one of {names})"
            )
        try:
            given[_ASSUMED[name]] = 0 if size == "0" else parse_bytes(size)
        except argparse.ArgumentTypeError as error:
            raise UsageError(error) from None
    return dataclasses.replace(Assumptions(), **given)


def parse_top(text: str) -> int:
    if (count := formatting.parse_count(text)) is None:
        raise argparse.ArgumentTypeError(f"invalid row count '{text}' (expected e.g. 20; 0: all)")
    return count


def add_top(parser: argparse.ArgumentParser, default: int = 10) -> None:
    parser.add_argument(
        "--top",
        type=parse_top,
        default=default,
        metavar="N",
        help="rows per list, 0 for all (default: %(default)s)",
    )


def add_output(parser: argparse.ArgumentParser) -> None:
    """For commands that print a result."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    add_file(parser)


def add_file(parser: argparse.ArgumentParser) -> None:
    """For commands that write a result to a file."""
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="write to FILE instead of standard output"
    )
    parser.add_argument("--force", action="store_true", help="replace FILE if it exists")
    add_verbosity(parser)


def add_verbosity(parser: argparse.ArgumentParser) -> None:
    verbosity = parser.add_mutually_exclusive_group()
    verbosity.add_argument(
        "-q", "--quiet", action="store_true", help="print no notes to standard error"
    )
    verbosity.add_argument(
        "-v", "--verbose", action="store_true", help="print more notes to standard error"
    )


def note(args: argparse.Namespace, text: str) -> None:
    """Prints to standard error, unless --quiet."""
    if not args.quiet:
        print_line(text)


def print_line(text: str) -> None:
    """Prints one line of at most 500 characters to standard error."""
    line = f"tidegauge: {make_printable(' '.join(text.split()))}"
    if len(line) > _MAX_LINE:
        line = line[: _MAX_LINE - 1] + "…"
    print_error(line)


def print_error(text: str) -> None:
    """Prints to standard error, if it is open: a script may have closed it."""
    if sys.stderr is not None:
        with suppress(OSError, ValueError):
            print(text, file=sys.stderr)


def flush_output() -> None:
    """Flushes standard output, if it is open. Raises OSError if that fails."""
    if sys.stdout is not None and not sys.stdout.closed:
        sys.stdout.flush()


def to_json(value: Any) -> str:
    """`value`: a dataclass, or dictionaries and lists that contain dataclasses."""
    return json.dumps(value, indent=2, default=dataclasses.asdict)


def write_result(args: argparse.Namespace, text: str) -> None:
    """Writes to standard output, or to the file given by --output."""
    if args.output:
        write_file(args, args.output, text)
    else:
        print(text)


def write_file(args: argparse.Namespace, path: str, text: str) -> None:
    """Raises FileExistsError without --force. Prints a note when the file is written."""
    with open_result(args, path) as file:
        file.write(f"{text}\n".encode())


def refuse_to_replace(args: argparse.Namespace, path: str) -> None:
    """Raises the FileExistsError of `write_file` early, before the work is done."""
    if os.path.lexists(path) and not args.force:
        raise FileExistsError(f"{path} exists; choose another name, or replace it with --force")


@contextmanager
def open_result(args: argparse.Namespace, path: str) -> Iterator[BinaryIO]:
    """Writes `path`, which is never incomplete. Prints a note at the end."""
    refuse_to_replace(args, path)
    # Special files, e.g. /dev/null, are written to directly.
    is_special = os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode)
    with open(path, "wb") if is_special else replace_file(path) as file:
        yield file
    note(args, f"wrote {path}")


def read_trace(args: argparse.Namespace, path: str) -> Summary:
    """Reads the summary and prints a note for each problem of the trace."""
    from tidegauge.report import read_summary

    with show_progress(args, f"reading {os.path.basename(path)}") as progress:
        summary = read_summary(path, progress)
    note_health(args, summary)
    return summary


def read_run(args: argparse.Namespace, path: str, max_moments: int | None = None) -> Run:
    """The same with all data of reports. `max_moments`: in timelines; None for no timelines."""
    from tidegauge.report.run import Run

    with show_progress(args, f"reading {os.path.basename(path)}") as progress:
        run = Run(path, max_moments=max_moments, progress=progress)
    note_health(args, run.summary)
    return run


def note_health(args: argparse.Namespace, summary: Summary) -> None:
    from tidegauge.report.text import describe_health

    for sentence in describe_health(summary):
        note(args, f"{summary.path}: {sentence}")
    if args.verbose:
        size = render_bytes(summary.file_bytes)
        note(args, f"{summary.path}: read {summary.event_count:,} events from {size}")


@contextmanager
def show_progress(args: argparse.Namespace, what: str) -> Iterator[Callable[[float], None] | None]:
    """Shows the progress of a slow task in one line, if standard error is a terminal."""
    if args.quiet or not formatting.is_terminal(sys.stderr):
        yield None
        return

    text = make_printable(what)[:48]

    def show(share: float) -> None:
        print(f"\r{text} {share:4.0%}", end="", file=sys.stderr, flush=True)

    try:
        yield show
    finally:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
