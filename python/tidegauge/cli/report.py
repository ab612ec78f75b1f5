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
    read_trace,
    to_json,
    write_result,
)
from tidegauge.cli.html import add_html, check_html, make_page, write_page
from tidegauge.report.summary import Peak, Summary
from tidegauge.report.text import render_report

if TYPE_CHECKING:
    from tidegauge._C import PostMortem

NAME = "report"
HELP = "show the peak of a recorded run by category, module, tensor and step"
EXAMPLES = """\
  tidegauge report train.tide
  tidegauge report train.tide --top 30
  tidegauge report train.tide --json | jq '.peaks[0].categories'
  tidegauge report train.tide --html train.html
  tidegauge report train.rank*.tide --html ranks.html
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "traces", nargs="+", metavar="FILE", help="trace from `tidegauge run`; several with --html"
    )
    add_html(parser)
    add_top(parser)
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    check_html(args)
    if args.html:
        _write_page(args)
    elif len(args.traces) > 1:
        raise UsageError(
            "several files require --html; to compare ranks use `tidegauge merge`, to compare two "
            "runs use `tidegauge diff`"
        )
    else:
        _write_text(args, args.traces[0])
    return EXIT_DONE


def _write_page(args: argparse.Namespace) -> None:
    summaries = [read_trace(args, path) for path in args.traces]
    if len(summaries) == 1:
        page = make_page(args, f"{args.traces[0]} - tidegauge", summaries, args.traces)
    else:
        summaries.sort(key=lambda summary: summary.rank)
        labels = [f"rank {summary.rank}" for summary in summaries]
        page = make_page(args, f"{len(summaries)} ranks - tidegauge", summaries, labels)
        try:
            page.add_ranks(summaries)
        except ValueError as error:
            raise UsageError(error) from None
    write_page(args, page)


def _write_text(args: argparse.Namespace, path: str) -> None:
    from tidegauge import _C
    from tidegauge.allocator import replay_trace

    summary = read_trace(args, path)
    peaks = {peak.device: peak.total_bytes for peak in summary.peaks}
    memory = replay_trace(path, catalogue=(), peaks=peaks, has_settings=False)
    failures = _C.Reader(path).failures()
    if args.json:
        lists = shorten_lists(summary, args.top)
        layers = [dataclasses.asdict(layer) for layer in memory.layers]
        rows = [_failure_to_json(each) for each in failures]
        write_result(args, to_json({**lists, "device_layers": layers, "failures": rows}))
    else:
        texts = [each.render() for each in failures]
        write_result(args, render_report(summary, args.top, memory, texts))


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
        units=peak.units[: top or None],
    )
