# SPDX-License-Identifier: BSD-3-Clause
"""`tidegauge merge run.rank*.tide`: the ranks of one run side by side."""

from __future__ import annotations

import argparse

from tidegauge.cli.common import (
    EXIT_DONE,
    UsageError,
    add_output,
    read_trace,
    to_json,
    write_result,
)
from tidegauge.report.ranks import merge_ranks, render_ranks

NAME = "merge"
HELP = "compare the ranks of one run: which rank has the highest peak, and the imbalance"
EXAMPLES = """\
  tidegauge merge train.rank*.tide
  tidegauge merge train.rank*.tide --json | jq '.devices[0].total'
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("traces", nargs="+", metavar="FILE", help="one trace per rank")
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    summaries = [read_trace(args, path) for path in args.traces]
    try:
        ranks = merge_ranks(summaries)
    except ValueError as error:
        raise UsageError(error) from None
    write_result(args, to_json(ranks) if args.json else render_ranks(ranks))
    return EXIT_DONE
