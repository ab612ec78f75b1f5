# SPDX-License-Identifier: BSD-3-Clause
"""`tidegauge rehearse train.py`: runs an unchanged script as one rank of a job on absent GPUs.

Each rank is a child process: the same command, with the stand-in for CUDA in its environment. With
a torch without CUDA, the child simulates instead.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tidegauge._util.formatting import parse_count
from tidegauge.cli import run as run_command
from tidegauge.cli.child import describe_signal, fork_and_wait
from tidegauge.cli.common import (
    EXIT_DONE,
    UsageError,
    add_assume,
    add_device,
    note,
    parse_assumptions,
    print_line,
    read_device,
)

if TYPE_CHECKING:
    from tidegauge.allocator import DeviceModel

NAME = "rehearse"
HELP = "run an unchanged training script as one rank of a job on GPUs that are not there"
USAGE = "tidegauge rehearse [options] (script.py | -m module) [arguments ...]"
EXAMPLES = """\
  tidegauge rehearse train.py
  tidegauge rehearse --gpus 8 --device h100-80g train.py --batch 4
  tidegauge rehearse --nodes 64 --gpus 8 --rank 0,511 train.py
  tidegauge rehearse torchrun --nnodes 2 --nproc-per-node 8 train.py
"""

_DEFAULT_DEVICE = "h100-80g"
_MOST_RANKS = 1 << 20
_ENGINE = "TIDEGAUGE_REHEARSAL"  # set in the child: how it pretends
_MESSAGES = "TIDEGAUGE_REHEARSAL_MESSAGES"  # of tidegauge._torch.absent_messages


def _count(text: str) -> int:
    count = parse_count(text)
    if not count:
        raise argparse.ArgumentTypeError(
            f"invalid number '{text}' (expected 1 or more, with at most nine digits)"
        )
    return count


def _count_or_zero(text: str) -> int:
    return 0 if text == "0" else _count(text)


def _fraction(text: str) -> float:
    with suppress(ValueError):
        if 0 <= (number := float(text)) <= 1:
            return number
    raise argparse.ArgumentTypeError(f"invalid fraction '{text}' (expected 0 to 1)")


def _routing(text: str) -> str | int:
    if text in ("balanced", "worst"):
        return text
    if (seed := parse_count(text)) is not None:
        return seed
    raise argparse.ArgumentTypeError(
        f"invalid routing '{text}' (expected balanced, worst, or a seed such as 7)"
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--gpus", type=_count, metavar="N", help="GPUs of a node, one rank each (default: 1)"
    )
    parser.add_argument("--nodes", type=_count, metavar="N", help="nodes of the job (default: 1)")
    parser.add_argument(
        "--rank",
        default="0",
        metavar="N[,N...]",
        help="ranks to rehearse, one after another (default: 0)",
    )
    add_device(parser)
    parser.add_argument(
        "--steps",
        type=_count_or_zero,
        default=3,
        metavar="N",
        help="end the script after N optimizer steps; 0: let it end by itself (default: "
        "%(default)s)",
    )
    parser.add_argument(
        "--item",
        type=float,
        default=1.0,
        metavar="NUMBER",
        help="the floating point number that the script reads instead of a computed one "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--mask-fraction",
        type=_fraction,
        default=1.0,
        metavar="F",
        help="the fraction of elements that a mask selects, if it was computed from unknown "
        "numbers (default: %(default)s)",
    )
    parser.add_argument(
        "--routing",
        type=_routing,
        default="balanced",
        metavar="balanced|worst|SEED",
        help="the experts that the tokens choose in a mixture of experts (default: balanced)",
    )
    parser.add_argument(
        "--events",
        choices=("quick", "slow"),
        default="quick",
        help="quick: CUDA events are done at once; slow: when the script waits for them. The two "
        "bound the memory that other streams use (default: quick)",
    )
    parser.add_argument(
        "--engine",
        choices=("auto", "real", "simulated"),
        default="auto",
        help="real: torch's CUDA build on a stand-in for CUDA; simulated: tensors without memory "
        "(default: real, if torch has CUDA)",
    )
    parser.add_argument(
        "--beside-gpu",
        action="store_true",
        help="rehearse on a machine that has a GPU; the GPU is not used",
    )
    add_assume(parser)
    run_command.add_recording(parser)
    run_command.add_script(parser)


def run(args: argparse.Namespace) -> int:
    words, is_module = run_command.read_script(args, USAGE)
    words, is_module = _read_launcher(args, words, is_module)
    args.gpus, args.nodes = args.gpus or 1, args.nodes or 1
    device = _read_device(args)
    if engine := os.environ.get(_ENGINE):
        return _run_rank(args, words, is_module, device, engine)
    if not is_module and not Path(words[0]).exists():
        raise UsageError(f"no such script: {words[0]}")
    ranks = _read_ranks(args)
    environment, engine = _choose_engine(args, device)
    environment[_ENGINE] = engine
    code = EXIT_DONE
    with tempfile.TemporaryDirectory(prefix="tidegauge-") as messages:
        environment[_MESSAGES] = messages
        for rank in ranks:
            code = code or _start(args, rank, environment)
    return code


def _read_device(args: argparse.Namespace) -> DeviceModel:
    device = read_device(args)
    if device is None:
        args.device = _DEFAULT_DEVICE
        device = read_device(args)
    assert device is not None
    return device


def _read_ranks(args: argparse.Namespace) -> list[int]:
    size = args.nodes * args.gpus
    if size > _MOST_RANKS:
        raise UsageError(f"a job of {size:,} ranks is too large (expected at most {_MOST_RANKS:,})")
    ranks = []
    for text in args.rank.split(","):
        rank = parse_count(text)
        if rank is None or rank >= size:
            raise UsageError(f"invalid rank '{text}' (expected 0 to {size - 1} for {size} ranks)")
        ranks.append(rank)
    return ranks


def _read_launcher(
    args: argparse.Namespace, words: list[str], is_module: bool
) -> tuple[list[str], bool]:
    """The script behind `torchrun`, whose numbers of nodes and processes count."""
    if is_module or Path(words[0]).name != "torchrun" or Path(words[0]).exists():
        return words, is_module
    from torch.distributed.run import get_args_parser

    launcher = get_args_parser().parse_args(words[1:])
    for option, text in (("nodes", launcher.nnodes), ("gpus", launcher.nproc_per_node)):
        number = str(text).rpartition(":")[2]  # the most of MIN:MAX
        if getattr(args, option) is None and (count := parse_count(number)):
            setattr(args, option, count)
    script = [launcher.training_script, *launcher.training_script_args]
    return script, bool(launcher.module)


def _choose_engine(args: argparse.Namespace, device: DeviceModel) -> tuple[dict[str, str], str]:
    """The environment of the child, and how it pretends."""
    from tidegauge import standin

    if args.engine == "simulated":
        return dict(os.environ), "simulated"
    gpu = standin.find_gpu()
    if gpu is not None and not args.beside_gpu:
        raise UsageError(
            f"this machine has a GPU ({gpu}); use `tidegauge run` to measure on it, or "
            "--beside-gpu to rehearse without it"
        )
    try:
        if standin.find_built() is None:
            note(args, "building the stand-in for CUDA, once for this torch")
        built = standin.build()
    except standin.StandinError as error:
        if args.engine == "real":
            raise
        note(
            args,
            f"{error} Simulating instead: kernels, streams and reserved memory are modelled, and "
            "values are unknown",
        )
        return dict(os.environ), "simulated"
    environment = standin.make_environment(
        built,
        device,
        args.gpus,
        args.nodes * args.gpus,
        assumptions=parse_assumptions(args.assume),
        events=args.events,
    )
    return environment, "real"


def _start(args: argparse.Namespace, rank: int, environment: dict[str, str]) -> int:
    """Runs one rank in a child; returns its exit code."""
    variables = dict(environment)
    if args.nodes * args.gpus > 1:
        variables.update(
            RANK=str(rank),
            WORLD_SIZE=str(args.nodes * args.gpus),
            LOCAL_RANK=str(rank % args.gpus),
            LOCAL_WORLD_SIZE=str(args.gpus),
            GROUP_RANK=str(rank // args.gpus),
            GROUP_WORLD_SIZE=str(args.nodes),
            NODE_RANK=str(rank // args.gpus),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT="29500",
        )
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    command = [sys.executable, *flags, "-m", "tidegauge", *args.argv]

    def become_child() -> int:
        os.execve(sys.executable, command, variables)

    code = fork_and_wait(become_child)
    if code >= 0:
        return code
    print_line(f"the rehearsal of rank {rank} was killed by {describe_signal(-code)}")
    return 128 - code


def _run_rank(
    args: argparse.Namespace, words: list[str], is_module: bool, device: DeviceModel, engine: str
) -> int:
    from tidegauge import standin
    from tidegauge.rehearsal import Job, RealRehearsal, Rehearsal, SimulatedRehearsal, Values

    size = args.nodes * args.gpus
    assumed = standin.resolve_assumptions(parse_assumptions(args.assume), device, size)
    job = Job(
        device,
        parse_count(os.environ.get("RANK", "0")) or 0,
        args.gpus,
        assumed.context_bytes or 0,
        assumed.communication_bytes or 0,
    )
    values = Values(args.item, args.mask_fraction, args.routing)
    rehearsal: Rehearsal
    if engine == "real":
        rehearsal = RealRehearsal(job, args.steps, values)
        args.allocator = True
    else:
        rehearsal = SimulatedRehearsal(job, args.steps, values)
        args.allocator = False
    return run_command.run_script(args, words, is_module, rehearsal)
