# SPDX-License-Identifier: BSD-3-Clause
"""`tidegauge calibrate`: fits the modelled times of a device to what was measured on it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tidegauge.cli.common import EXIT_DONE, UsageError, read_device
from tidegauge.cli.estimate import (
    clear_progress,
    make_estimator,
    read_question,
    run_checked,
)
from tidegauge.cli.run_arguments import add_run_arguments

if TYPE_CHECKING:
    from tidegauge.planning.speed import Speed

NAME = "calibrate"
HELP = "fit the modelled times of a device to a measured step, or to timed ops"
EXAMPLES = """\
  tidegauge calibrate llama.py --fsdp 8 --device h100-80g --measured 5762tok/s
  tidegauge calibrate model.py --device l40s --measured 212ms
  tidegauge calibrate --timings timings.json --device l40s
  tidegauge calibrate --forget --device l40s
  (examples/python/time_ops.py writes timings.json on the GPU; see docs/plan.md)
"""
IN_CHILD = True  # because simulating a GPU may crash the process


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run_arguments(parser, is_target_needed=False)
    source = parser.add_argument_group("what was measured").add_mutually_exclusive_group(
        required=True
    )
    source.add_argument(
        "--measured",
        metavar="STEP",
        help="time of a step of TARGET under this plan, e.g. 850ms, or tokens per second and "
        "device, e.g. 5762tok/s",
    )
    source.add_argument(
        "--timings", metavar="FILE", help="op timings that examples/python/time_ops.py wrote"
    )
    source.add_argument(
        "--forget", action="store_true", help="remove the calibration of the device"
    )
    parser.set_defaults(folder=None)


def run(args: argparse.Namespace) -> int:
    device = read_device(args)
    if device is None or not device.key:
        raise UsageError("calibrate needs --device, e.g. --device h100-80g")
    if args.measured:
        if args.target is None:
            raise UsageError("--measured needs the TARGET that was measured, e.g. llama.py")
        return run_checked(args, _calibrate_by_step)
    if args.target is not None:
        raise UsageError(f"'{args.target}' is not needed: only --measured takes a TARGET")
    return _forget(device.key) if args.forget else _calibrate_by_timings(args, device.key)


def _calibrate_by_step(args: argparse.Namespace) -> int:
    from tidegauge.estimation.calibration import fit_step, parse_measured
    from tidegauge.planning.speed import Speed

    measured = parse_measured(args.measured)
    contract, question = read_question(args)
    assert question.device is not None
    speed = Speed(question.device.key)  # a measured step replaces an earlier calibration
    with make_estimator(args, contract, question) as estimator:
        found = question.estimate(estimator)
        step = estimator.step_of(found)
        wanted_ns = measured.find_ns(estimator.tokens_of(found))
        plan = found.plan.describe()
        fitted = fit_step(step, speed, wanted_ns, f"{found.target}, {plan}: {measured.text}")
        before, after = (step.time(each)["total_ns"] / 1e6 for each in (speed, fitted))
    clear_progress(args)
    _save(fitted)
    print(f"The step takes {after:,.1f} ms; from the data sheet it took {before:,.1f} ms.")
    return EXIT_DONE


def _calibrate_by_timings(args: argparse.Namespace, device: str) -> int:
    from tidegauge.estimation.calibration import fit_timings
    from tidegauge.planning.speed import Speed

    try:
        _save(fit_timings(args.timings, Speed(device)))
    except ValueError as error:
        raise UsageError(error) from None
    return EXIT_DONE


def _forget(device: str) -> int:
    from tidegauge.planning.speed import read_calibrations, save_calibrations

    speeds = read_calibrations()
    if device not in speeds:
        raise UsageError(f"{device} has no calibration")
    save_calibrations({key: speed for key, speed in speeds.items() if key != device})
    print(f"Times of {device} are not calibrated any more.")
    return EXIT_DONE


def _save(speed: Speed) -> None:
    from tidegauge import _core
    from tidegauge.planning.speed import calibrations_path, read_calibrations, save_calibrations

    save_calibrations({**read_calibrations(), speed.device: speed})
    assumed = _core.speed_constants(speed.device)
    print(f"Times of {speed.device} are now calibrated by {speed.calibration}.")
    for name, value in speed.constants:
        print(f"  {name:18}{value:>12.4g}  (was {assumed[name]:.4g})")
    print(f"Saved to {calibrations_path()}.")
