# SPDX-License-Identifier: BSD-3-Clause
"""`--html FILE` for `report`, `diff` and `estimate`: writes the runs as one page."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidegauge.cli.common import UsageError, note, refuse_to_replace, show_progress, write_file

if TYPE_CHECKING:
    from tidegauge.allocator import DeviceMemory
    from tidegauge.report import Summary
    from tidegauge.report.page import Page


def add_html(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--html", metavar="FILE", help="write an interactive page for a browser")


def check_html(args: argparse.Namespace) -> None:
    """Checks, before any work, for conflicting options and an existing file."""
    if args.html and (args.json or args.output):
        raise UsageError("--html cannot be combined with --json or --output")
    if args.html:
        refuse_to_replace(args, args.html)


def make_page(
    args: argparse.Namespace,
    title: str,
    summaries: Sequence[Summary],
    labels: Sequence[str],
    names: Sequence[str] | None = None,
    memories: Sequence[DeviceMemory] | None = None,
) -> Page:
    """`names`: shown instead of the file names. `memories`: on the devices that the user named."""
    from tidegauge.report.page import MOST_MOMENTS, Page

    page = Page(title)
    paths = [os.path.basename(summary.path) for summary in summaries]
    for i, (summary, label) in enumerate(zip(summaries, labels, strict=True)):
        with show_progress(args, f"reading {names[i] if names else paths[i]}") as progress:
            page.add_run(
                summary,
                label,
                name=names[i] if names else None,
                memory=memories[i] if memories else None,
                max_moments=MOST_MOMENTS // len(summaries),
                progress=progress,
            )
    return page


def write_page(args: argparse.Namespace, page: Page) -> None:
    from tidegauge.report.html import render_html

    write_file(args, args.html, render_html(page))
    if args.verbose:
        note(args, f"{args.html} has {os.stat(args.html).st_size:,} bytes")
