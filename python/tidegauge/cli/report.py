# SPDX-License-Identifier: BSD-3-Clause
"""`tidegauge report run.tide`: shows what the memory at the peak was used for."""

from __future__ import annotations

import argparse
import dataclasses
from typing import TYPE_CHECKING, Any

from tidegauge.cli.common import (
    EXIT_DONE,
    UsageError,
    add_output,
    add_top,
    read_run,
    read_trace,
    to_json,
    write_result,
)
from tidegauge.cli.html import add_html, check_html, make_page, read_runs, write_page
from tidegauge.report.summary import Peak, Summary
from tidegauge.report.text import render_leaks, render_report

if TYPE_CHECKING:
    from tidegauge._core import PostMortem
    from tidegauge.report.run import Run

NAME = "report"
HELP = "show the peak of a recorded run by category, module, tensor and step"
EXAMPLES = """\
  tidegauge report train.tide
  tidegauge report train.tide --top 30
  tidegauge report train.tide --json | jq '.peaks[0].categories'
  tidegauge report train.tide --html train.html
  tidegauge report train.tide --leaks
  tidegauge report train.rank*.tide --html ranks.html
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "traces", nargs="+", metavar="FILE", help="trace from `tidegauge run`; several with --html"
    )
    parser.add_argument(
        "--leaks",
        action="store_true",
        help="show only what the run keeps in more and more copies from step to step",
    )
    add_html(parser)
    add_top(parser)
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    check_html(args)
    if args.leaks and args.html:
        raise UsageError("--leaks cannot be combined with --html; the page lists what grows, too")
    if args.html:
        runs = _write_page(args)
        if len(runs) == 1:
            _write_text(args, runs[0])
    elif len(args.traces) > 1:
        raise UsageError(
            "several files require --html; to compare ranks use `tidegauge merge`, to compare two "
            "runs use `tidegauge diff`"
        )
    elif args.leaks:
        _write_leaks(args, read_trace(args, args.traces[0]))
    else:
        _write_text(args, read_run(args, args.traces[0]))
    return EXIT_DONE


def _write_leaks(args: argparse.Namespace, summary: Summary) -> None:
    if args.json:
        growth = [dataclasses.asdict(each) for each in summary.growth[: args.top or None]]
        write_result(args, to_json({"step_count": summary.step_count, "growth": growth}))
    else:
        write_result(args, render_leaks(summary, args.top))


def _write_page(args: argparse.Namespace) -> list[Run]:
    runs = read_runs(args, args.traces)
    if len(runs) == 1:
        page = make_page(f"{args.traces[0]} - tidegauge", runs, args.traces)
    else:
        runs.sort(key=lambda run: run.summary.rank)
        labels = [f"rank {run.summary.rank}" for run in runs]
        page = make_page(f"{len(runs)} ranks - tidegauge", runs, labels)
        try:
            page.add_ranks([run.summary for run in runs])
        except ValueError as error:
            raise UsageError(error) from None
    write_page(args, page)
    return runs


def _write_text(args: argparse.Namespace, run: Run) -> None:
    if args.json:
        lists = shorten_lists(run.summary, args.top)
        layers = [dataclasses.asdict(layer) for layer in run.memory.layers]
        rows = [_failure_to_json(each) for each in run.failures]
        write_result(args, to_json({**lists, "device_layers": layers, "failures": rows}))
    else:
        texts = [each.render() for each in run.failures]
        write_result(args, render_report(run.summary, args.top, run.memory, texts))


def _failure_to_json(failure: PostMortem) -> dict[str, Any]:
    names = ("failed_bytes", "device", "op", "module", "step", "message", "live_bytes", "live")
    return {name: getattr(failure, name) for name in names}


def shorten_lists(summary: Summary, top: int) -> dict[str, Any]:
    """For JSON: keeps `top` rows of each list, or all if `top` is 0."""
    peaks = tuple(shorten_peak(peak, top) for peak in summary.peaks)
    return dataclasses.asdict(dataclasses.replace(summary, peaks=peaks))


def shorten_peak(peak: Peak, top: int) -> Peak:
    return dataclasses.replace(
        peak,
        modules=peak.modules[: top or None],
        tensors=peak.tensors[: top or None],
        lines=peak.lines[: top or None],
        units=peak.units[: top or None],
    )
