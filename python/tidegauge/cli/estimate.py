# SPDX-License-Identifier: BSD-3-Clause
"""`tidegauge estimate model.py`: does a training run fit? Simulated, so it needs no device."""

from __future__ import annotations

import argparse
import dataclasses
import math
import shlex
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from tidegauge._util.formatting import is_terminal
from tidegauge.cli.common import (
    EXIT_DOES_NOT_FIT,
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    UsageError,
    add_output,
    add_top,
    note,
    parse_assumptions,
    read_device,
    refuse_to_replace,
    to_json,
    write_file,
    write_result,
)
from tidegauge.cli.html import add_html, check_html, write_page
from tidegauge.cli.progress import Progress
from tidegauge.cli.run_arguments import add_run_arguments
from tidegauge.cli.simulated_page import make_simulated_page
from tidegauge.errors import FormatError

if TYPE_CHECKING:
    from tidegauge.estimation import Advice, Contract, Estimate, Estimator
    from tidegauge.estimation.sweep import Question, SweepPoint

NAME = "estimate"
HELP = "estimate whether a training run fits a device, by simulating it on the CPU"
EXAMPLES = """\
  tidegauge estimate llama.py --fsdp 8 --mp bf16/fp32 --device h100-80g
  tidegauge estimate llama.py --fsdp 8 --ac full --device h100-80g --max batch
  tidegauge estimate config.json --sweep batch=1,2,4 --sweep ac=none,full
  tidegauge estimate torch.nn:TransformerEncoderLayer --config layer.json
  (exit code 3: does not fit; docs/estimate.md describes the Python file)
"""
IN_CHILD = True  # because simulating a GPU may crash the process
T = TypeVar("T")
_SHOWN_ROWS = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run_arguments(parser)
    many = parser.add_argument_group("sweep and search")
    many.add_argument(
        "--sweep",
        action="append",
        default=[],
        metavar="NAME=A,B,...",
        help="try each value of an option or a setting; repeat it to try all combinations",
    )
    many.add_argument("--max", metavar="NAME", help="find the largest value of a setting that fits")
    many.add_argument(
        "--no-advice", action="store_true", help="do not look for changes that make it fit"
    )
    parser.add_argument("--trace", metavar="FILE", help="save the trace of the simulated run")
    parser.add_argument(
        "--timeline", metavar="FILE", help="save the modelled step as slices for Perfetto"
    )
    parser.add_argument(
        "--moments",
        default="",
        metavar="NAMES",
        help="tensors and reserved memory at: init,first,steady (before the first step, in it, in "
        "the last one)",
    )
    add_html(parser)
    add_top(parser, default=_SHOWN_ROWS)
    parser.set_defaults(folder=None, top=None)
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    check_html(args)
    args.has_top_times = args.top is not None  # they are shown on request
    args.top = _SHOWN_ROWS if args.top is None else args.top
    if args.routing and "," in args.routing:  # a comparison
        args.sweep, args.routing = [*args.sweep, f"routing={args.routing}"], None
    for path in filter(None, (args.trace, args.timeline)):
        refuse_to_replace(args, path)
    args.moments = _read_moments(args.moments)
    if args.sweep and args.max:
        raise UsageError("--sweep and --max are mutually exclusive")
    return run_checked(args, _answer)


def _read_moments(text: str) -> tuple[str, ...]:
    from tidegauge.estimation.moment_names import parse_moments

    try:
        return parse_moments(text) if text else ()
    except ValueError as error:
        raise UsageError(error) from None


def _answer(args: argparse.Namespace) -> int:
    contract, question = read_question(args)
    with make_estimator(args, contract, question) as estimator:
        if args.sweep:
            return _sweep(args, estimator, question)
        if args.max:
            return _find_largest(args, estimator, question)
        return _estimate(args, estimator, question)


def run_checked(args: argparse.Namespace, body: Callable[[argparse.Namespace], int]) -> int:
    """Checks the arguments and calls `body`. Errors in the target, its program or the plan end in a
    message and an exit code.
    """
    from tidegauge.estimation.contract import ContractError, ModelError

    args.progress = Progress(is_shown=is_terminal(sys.stderr) and not args.quiet)
    try:
        _check_arguments(args)
        return body(args)
    except ModelError as error:
        if args.verbose:
            traceback.print_exception(error.__cause__)
        note(args, str(error))
        return EXIT_FAILED
    except ContractError as error:
        for line in str(error).splitlines():  # the message may contain an example
            note(args, line)
        return EXIT_USAGE
    except FormatError:
        raise
    except ValueError as error:
        raise UsageError(error) from None


def _check_arguments(args: argparse.Namespace) -> None:
    """Reports invalid arguments before torch is imported, which takes seconds."""
    from tidegauge import _core
    from tidegauge.estimation.plan import Plan
    from tidegauge.estimation.target_kind import find_target_kind

    find_target_kind(args.target, args.config)
    read_device(args)
    _core.check_alloc_config(args.alloc_conf or "")
    parse_assumptions(args.assume)
    Plan(**_read_options(args))
    for text in args.set:
        _split(text, "--set", "batch=2")
    for text in getattr(args, "sweep", ()):
        _split(text, "--sweep", "batch=1,2,4")


def _read_options(args: argparse.Namespace) -> dict[str, Any]:
    from tidegauge.estimation.plan import OPTIONS, parse_option

    given = {name: getattr(args, name) for name in OPTIONS}
    return {name: parse_option(name, text) for name, text in given.items() if text is not None}


def read_question(args: argparse.Namespace) -> tuple[Contract, Question]:
    """The target, and what is asked about it."""
    from tidegauge.estimation import load_contract
    from tidegauge.estimation.plan import Plan
    from tidegauge.estimation.sweep import Question

    contract = load_contract(args.target, args.config)
    question = Question(Plan(**_read_options(args)), read_device(args), args.alloc_conf)
    for text in args.set:
        name, value = _split(text, "--set", "batch=2")
        contract.resolve({name: value})
        question = question.change(contract, name, value)
    return contract, question


def make_estimator(args: argparse.Namespace, contract: Contract, question: Question) -> Estimator:
    from tidegauge.estimation import Estimator
    from tidegauge.estimation.estimator import check_rank

    return Estimator(
        contract,
        rank=check_rank(args.rank, question.plan),
        assumed=_read_assumptions(args),
        simulated_device=args.simulate,
        progress=args.progress,
        folder=args.folder,
    )


def _split(text: str, option: str, example: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise UsageError(f"invalid {option} '{text}' (expected NAME=VALUE, e.g. {example})")
    return name, value


def _read_assumptions(args: argparse.Namespace) -> dict[str, int]:
    from tidegauge.allocator import Assumptions

    default = dataclasses.asdict(Assumptions())
    given = dataclasses.asdict(parse_assumptions(args.assume))
    return {name: value for name, value in given.items() if value != default[name]}


def _collect(found: Iterable[T], into: list[T]) -> bool:
    """False if Ctrl-C interrupted it; `into` then has the results so far."""
    try:
        into.extend(found)
    except KeyboardInterrupt:
        return False
    return True


def _estimate(args: argparse.Namespace, estimator: Estimator, question: Question) -> int:
    from tidegauge.estimation.advice import advise, find_planned, rank_advice
    from tidegauge.estimation.sweep import SweepPoint
    from tidegauge.estimation.text import render_estimate

    found = question.estimate(estimator)
    if args.trace:
        estimator.save_trace(found, args.trace, overwrite=args.force)
    if args.timeline:
        _write_timeline(args, estimator, found)
    advice: list[Advice] | None = None
    is_whole, plan_command = True, ""
    if found.fits is False and not args.no_advice:
        tried: list[Advice] = []
        is_whole = _collect(advise(estimator, question, found), tried)
        advice = rank_advice(tried)
        if (planned := find_planned(estimator, advice)) is not None:
            plan_command = _render_command(args, "plan", planned)
    clear_progress(args)
    if args.json:
        rows = [estimate_to_json(each.estimate, args.top) for each in advice or ()]
        listed = [
            {**_fields(each, "change", "cost", "saved_bytes"), "estimate": row}
            for each, row in zip(advice or (), rows, strict=True)
        ]
        whole = {**estimate_to_json(found, args.top), "advice": listed}
        whole["plan_command"] = plan_command
        write_result(args, to_json(whole))
    else:
        text = render_estimate(
            found,
            args.top,
            advice,
            plan_command=plan_command,
            has_top_times=args.has_top_times,
            moments=args.moments,
        )
        write_result(args, text)
    _write_html(args, estimator, [SweepPoint({}, found)])
    if not is_whole:
        return EXIT_INTERRUPTED
    return EXIT_DOES_NOT_FIT if found.verdict == "does not fit" else EXIT_DONE


def _render_command(args: argparse.Namespace, name: str, question: Question) -> str:
    """A command that asks the question, ready to be copied."""
    from tidegauge.estimation.plan import render_options

    words = ["tidegauge", name, args.target, *render_options(question.plan)]
    words += ["--device-memory", f"{args.device_memory}B"] if args.device_memory else []
    others = {
        "config": args.config,
        "device": args.device,
        "alloc-conf": question.alloc_conf,
        "simulate": "" if args.simulate == "cuda" else args.simulate,
        "rank": "" if args.rank == "worst" else args.rank,
    }
    for option, value in others.items():
        words += [f"--{option}", value] if value else []
    for text in args.assume:
        words += ["--assume", text]
    return shlex.join(words)


def _write_timeline(args: argparse.Namespace, estimator: Estimator, found: Estimate) -> None:
    from tidegauge.estimation.timeline import render_timeline
    from tidegauge.planning.speed import find_speed

    speed = find_speed(found.device.key) if found.device else None
    if speed is None:
        raise UsageError("--timeline needs --device, with peaks that are known")
    write_file(args, args.timeline, render_timeline(estimator.step_of(found), speed))


def _write_html(
    args: argparse.Namespace, estimator: Estimator, points: Sequence[SweepPoint]
) -> None:
    """Writes the simulated runs side by side, with a plot of the needed memory for a sweep."""
    from tidegauge.estimation.plot import plot_sweep
    from tidegauge.estimation.sweep import describe_sweep, find_telling

    found = [(point.values, point.estimate) for point in points if point.estimate]
    if args.html and found:
        labels = [_label(values) or estimate.plan.describe() for values, estimate in found]
        estimates = [estimate for _, estimate in found]
        page = make_simulated_page(f"estimate of {args.target}", estimator, estimates, labels)
        if points[0].values:
            headline = find_telling(points).estimate
            shown = next(i for i, (_, each) in enumerate(found) if each is headline)
            page.add_sweep(plot_sweep(points), describe_sweep(points), shown)
        write_page(args, page)
    elif args.html:
        note(args, f"did not write {args.html}: no run was simulated")


def _sweep(args: argparse.Namespace, estimator: Estimator, question: Question) -> int:
    from tidegauge.estimation.sweep import sweep
    from tidegauge.estimation.text import render_sweep

    axes = {}
    for text in args.sweep:
        name, values = _split(text, "--sweep", "batch=1,2,4")
        axes[name.replace("-", "_")] = values.split(",")
    points: list[SweepPoint] = []
    args.progress.begin(math.prod(len(values) for values in axes.values()))
    is_whole = _collect(args.progress.count(sweep(estimator, question, axes)), points)
    clear_progress(args)
    if args.json:
        rows = [
            {
                "values": point.values,
                "fault": point.fault,
                "estimate": point.estimate and estimate_to_json(point.estimate, args.top),
            }
            for point in points
        ]
        write_result(args, to_json({"points": rows, "is_whole": is_whole}))
    else:
        write_result(args, render_sweep(points))
    _write_html(args, estimator, points)
    return EXIT_DONE if is_whole else EXIT_INTERRUPTED


def _find_largest(args: argparse.Namespace, estimator: Estimator, question: Question) -> int:
    from tidegauge.estimation.sweep import find_largest, to_points
    from tidegauge.estimation.text import render_largest

    tried: list[tuple[int, Estimate]] = []
    is_whole = _collect(find_largest(estimator, question, args.max), tried)
    clear_progress(args)
    largest = max((value for value, found in tried if found.fits), default=None)
    if args.json:
        rows = [
            {"value": value, "estimate": estimate_to_json(found, args.top)}
            for value, found in tried
        ]
        write_result(
            args,
            to_json({"name": args.max, "largest": largest, "tried": rows, "is_whole": is_whole}),
        )
    else:
        write_result(args, render_largest(args.max, tried))
    _write_html(args, estimator, to_points(args.max, tried))
    if not is_whole:
        return EXIT_INTERRUPTED
    return EXIT_DOES_NOT_FIT if largest is None else EXIT_DONE


def estimate_to_json(estimate: Estimate, top: int) -> dict[str, Any]:
    """Keeps `top` rows of each list, or all if `top` is 0."""
    from tidegauge.cli.report import shorten_peak

    fields = dataclasses.asdict(
        dataclasses.replace(estimate, peak=shorten_peak(estimate.peak, top))
    )
    fields["plan"]["settings"] = dict(estimate.plan.settings)
    if fields["time"]:
        for name in ("modules", "ops"):
            fields["time"][name] = fields["time"][name][: top or None]
    return fields


def _label(values: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _fields(value: Any, *names: str) -> dict[str, Any]:
    return {name: getattr(value, name) for name in names}


def clear_progress(args: argparse.Namespace) -> None:
    if is_terminal(sys.stderr) and not args.quiet:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
