# SPDX-License-Identifier: BSD-3-Clause
"""`tidegauge diff before.tide after.tide`: changes of the peak, checked against limits."""

from __future__ import annotations

import argparse
import dataclasses

from tidegauge.cli.common import (
    EXIT_DOES_NOT_FIT,
    EXIT_DONE,
    UsageError,
    add_output,
    add_top,
    note,
    read_trace,
    to_json,
    write_result,
)
from tidegauge.cli.html import add_html, check_html, make_page, read_runs, write_page
from tidegauge.report.budget import (
    Budget,
    BudgetError,
    Limit,
    find_breaches,
    parse_limit,
    read_budget,
)
from tidegauge.report.comparison import Comparison, DeviceComparison, compare, render_comparison

NAME = "diff"
HELP = "compare the peaks of two runs; exit code 3 if a limit is exceeded"
EXAMPLES = """\
  tidegauge diff before.tide after.tide
  tidegauge diff main.tide branch.tide --fail-above 1%     (or 20MiB)
  tidegauge diff main.tide branch.tide --budget budget.toml
  tidegauge diff before.tide after.tide --html diff.html

budget.toml (every table and key is optional):
  [peak]                 # limits on the second run, for each device
  total = "2GiB"
  "Saved Activation" = "512MiB"
  [growth]               # limits on the growth from the first run to the second
  total = "1%"
  [modules]              # limits at the second run's peak, including submodules
  "Net.blocks" = "800MiB"
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("before", metavar="A", help="trace of the first run")
    parser.add_argument("after", metavar="B", help="trace of the second run")
    parser.add_argument(
        "--fail-above",
        type=_parse_limit,
        metavar="LIMIT",
        help="exit code 3 if a device's peak grew by more than LIMIT, e.g. 1%% or 20MiB",
    )
    parser.add_argument(
        "--budget", metavar="FILE", help="exit code 3 if a limit in this file is exceeded"
    )
    add_html(parser)
    add_top(parser)
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    check_html(args)
    try:
        budget = read_budget(args.budget) if args.budget else Budget({}, {}, {})
    except BudgetError as error:
        raise UsageError(error) from None
    if args.fail_above:
        budget = dataclasses.replace(budget, growth={**budget.growth, "total": args.fail_above})
    runs = read_runs(args, (args.before, args.after)) if args.html else []
    if args.html:
        before, after = (run.summary for run in runs)
    else:
        before, after = (read_trace(args, path) for path in (args.before, args.after))
    comparison = compare(before, after)
    breaches = find_breaches(budget, comparison, after)
    if args.html:
        title = f"{args.before} and {args.after} - tidegauge"
        page = make_page(title, runs, ("before", "after"))
        page.add_comparison(before, after)
        write_page(args, page)
    if args.json:
        result = dataclasses.asdict(_shorten_lists(comparison, args.top))
        write_result(args, to_json({**result, "breaches": breaches}))
    else:
        write_result(args, render_comparison(comparison, (before, after), args.top))
    for breach in breaches:
        note(args, f"limit exceeded: {breach.text}")
    return EXIT_DOES_NOT_FIT if breaches else EXIT_DONE


def _shorten_lists(comparison: Comparison, top: int) -> Comparison:
    def shorten(device: DeviceComparison) -> DeviceComparison:
        return dataclasses.replace(
            device,
            modules=device.modules[: top or None],
            tensors=device.tensors[: top or None],
            lines=device.lines[: top or None],
        )

    return dataclasses.replace(comparison, devices=tuple(map(shorten, comparison.devices)))


def _parse_limit(text: str) -> Limit:
    try:
        return parse_limit(text)
    except BudgetError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
