# SPDX-License-Identifier: BSD-3-Clause
"""`tidegauge plan model.py`: the checkpointing of each block that fits and is fastest."""

from __future__ import annotations

import argparse
import dataclasses
from typing import TYPE_CHECKING, Any

from tidegauge.cli.common import (
    EXIT_DOES_NOT_FIT,
    EXIT_DONE,
    UsageError,
    add_output,
    note,
    parse_bytes,
    refuse_to_replace,
    to_json,
    write_file,
    write_result,
)
from tidegauge.cli.estimate import (
    clear_progress,
    make_estimator,
    read_question,
    run_checked,
)
from tidegauge.cli.html import add_html, check_html, write_page
from tidegauge.cli.run_arguments import add_run_arguments
from tidegauge.cli.simulated_page import make_simulated_page

if TYPE_CHECKING:
    from tidegauge.estimation import Estimator
    from tidegauge.planning.configurations import Choice, Variant
    from tidegauge.planning.planner import PlanResult, Row

NAME = "plan"
HELP = "choose the activation checkpointing of each block, so that a run fits and is fastest"
EXAMPLES = """\
  tidegauge plan llama.py --fsdp 8 --mp bf16/fp32 --device h100-80g
  tidegauge plan llama.py --fsdp 8 --device l40s --write plan.json
  tidegauge plan config.json --device l40s --code
  tidegauge plan llama.py --fsdp 8 --device l40s --try batch --global-batch 64
  (exit code 3: no choice fits; docs/plan.md describes how to apply a plan)
"""
IN_CHILD = True  # because simulating a GPU may crash the process


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run_arguments(parser)
    plan = parser.add_argument_group("planning")
    plan.add_argument(
        "--budget",
        type=parse_bytes,
        metavar="SIZE",
        help="memory to use at most, e.g. 60GiB; default: the device",
    )
    plan.add_argument(
        "--speed",
        default="",
        metavar="NAME",
        help="device of the catalogue whose times are estimated; default: that of --device",
    )
    plan.add_argument(
        "--try",
        dest="choices",
        default="ac",
        metavar="WHAT",
        help="what to choose beside ac, the checkpointing: some of ac,batch,reshard,wrap,offload",
    )
    plan.add_argument(
        "--global-batch",
        type=_parse_count,
        metavar="N",
        help="for batch: what all ranks train on in one step; micro-batch x accumulation is chosen",
    )
    plan.add_argument(
        "--irregular",
        action="store_true",
        help="also plans whose equal blocks are not side by side, if more than 1 %% faster",
    )
    plan.add_argument("--write", metavar="FILE", help="write the plan as JSON")
    plan.add_argument("--code", action="store_true", help="print the plan as PyTorch code")
    add_html(parser)
    parser.set_defaults(folder=None)
    add_output(parser)


def _parse_count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"invalid batch '{text}' (expected a number, at least 1)")
    return int(text)


def run(args: argparse.Namespace) -> int:
    check_html(args)
    if args.write:
        refuse_to_replace(args, args.write)
    if args.ac is not None:
        raise UsageError("plan chooses the checkpointing; leave out --ac")
    return run_checked(args, _plan)


def _plan(args: argparse.Namespace) -> int:
    from tidegauge.planning.configurations import (
        find_configuration,
        list_variants,
        parse_choices,
    )
    from tidegauge.planning.planner import BudgetError

    choices = parse_choices(args.choices)
    contract, question = read_question(args)
    if question.device is None:
        raise UsageError("plan needs --device, e.g. --device h100-80g")
    plans = list_variants(contract, question.plan, choices, args.global_batch)
    with make_estimator(args, contract, question) as estimator:
        try:
            choice = find_configuration(
                estimator,
                plans,
                question.device,
                budget_bytes=args.budget,
                alloc_conf=question.alloc_conf,
                speed=args.speed,
                irregular=args.irregular,
            )
        except BudgetError as error:
            clear_progress(args)
            note(args, str(error))
            return EXIT_DOES_NOT_FIT
        found = choice.best
        if args.html:
            _write_html(args, estimator, found)
    clear_progress(args)
    if args.write:
        write_file(args, args.write, found.applied.to_json())
    write_result(args, _render(args, choice))
    return EXIT_DONE


def _write_html(args: argparse.Namespace, estimator: Estimator, found: PlanResult) -> None:
    """The front of memory against time, and the simulated runs."""
    from tidegauge.planning.plot import list_plotted, plot_front
    from tidegauge.planning.text import describe_answer

    rows = list_plotted(found)
    estimates = [row.estimate for row in rows]
    labels = [each.plan.ac for each in estimates]
    page = make_simulated_page(f"plan of {args.target}", estimator, estimates, labels)
    shown = next(i for i, row in enumerate(rows) if row.kinds == found.chosen.kinds)
    page.add_sweep(plot_front(found), describe_answer(found), shown)
    write_page(args, page)


def _render(args: argparse.Namespace, choice: Choice) -> str:
    found = choice.best
    if args.json:
        return to_json(
            {
                **found.facts,
                "is_calibrated": bool(found.speed.calibration),
                "times_are": found.speed.describe(),
                "chosen": _row_to_json(found.chosen),
                "compared": [_row_to_json(row) for row in found.rows],
                "tried": [_variant_to_json(each) for each in choice.variants],
                "front": [_row_to_json(row) for row in found.front],
                "simulated": found.simulated,
                "gain_ns": found.gain_ns,
                "gap_ns": found.gap_ns,
                "irregular_ns": found.irregular_ns,
                "effects": {
                    name: dataclasses.asdict(effect)
                    for name, effect in zip(found.blocks, found.effects, strict=True)
                },
                "blocks": {name: list(kept) for name, kept in found.applied.blocks.items()},
            }
        )
    if args.code:
        return found.applied.to_code()
    from tidegauge.planning.text import render_plan

    return render_plan(found, choice.variants)


def _variant_to_json(variant: Variant) -> dict[str, Any]:
    return {
        "batch": dict(variant.plan.settings).get("batch"),
        "accumulate": variant.plan.accumulate,
        "reshard": variant.plan.reshard,
        "wrap": variant.plan.wrap,
        "offload": variant.plan.offload,
        "is_slower": variant.is_slower,
        "least_bytes": variant.least_bytes,
        "without_checkpointing": _row_to_json(variant.fastest),
        "chosen": variant.result and _row_to_json(variant.result.chosen),
    }


def _row_to_json(row: Row) -> dict[str, Any]:
    return {
        "name": row.name,
        "ac": row.estimate.plan.ac,
        "fits": row.fits,
        "needed_bytes": row.estimate.needed_bytes,
        "high_bytes": row.estimate.high_bytes,
        "time": row.time,
    }
