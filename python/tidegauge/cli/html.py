# SPDX-License-Identifier: BSD-3-Clause
"""`--html FILE` for `report`, `diff` and `estimate`: writes the runs as one page."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tidegauge.cli.common import note, read_run, refuse_to_replace, write_file

if TYPE_CHECKING:
    from tidegauge.allocator import DeviceMemory
    from tidegauge.report.page import Page
    from tidegauge.report.run import Run


def add_html(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--html", metavar="FILE", help="write an interactive page for a browser")


def check_html(args: argparse.Namespace) -> None:
    """Raises FileExistsError early, before the work is done."""
    if args.html:
        refuse_to_replace(args, args.html)


def read_runs(args: argparse.Namespace, paths: Sequence[str]) -> list[Run]:
    """Reads the runs for one page. The runs share the moments that fit into a page."""
    from tidegauge.report.page import MOST_MOMENTS

    return [read_run(args, path, MOST_MOMENTS // len(paths)) for path in paths]


def make_page(
    title: str,
    runs: Sequence[Run],
    labels: Sequence[str],
    names: Sequence[str] | None = None,
    memories: Sequence[DeviceMemory] | None = None,
    step_times: Sequence[dict[str, Any] | None] | None = None,
) -> Page:
    """`names`: shown instead of the file names. `memories`, `step_times`: those of each run."""
    from tidegauge.report.page import Page

    page = Page(title)
    for i, (run, label) in enumerate(zip(runs, labels, strict=True)):
        page.add_run(
            run,
            label,
            name=names[i] if names else None,
            memory=memories[i] if memories else None,
            step_time=step_times[i] if step_times else None,
        )
    return page


def write_page(args: argparse.Namespace, page: Page) -> None:
    from tidegauge.report.html import render_html

    write_file(args, args.html, render_html(page))
    if args.verbose:
        note(args, f"{args.html} has {os.stat(args.html).st_size:,} bytes")
