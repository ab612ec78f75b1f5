# SPDX-License-Identifier: BSD-3-Clause
"""Finds the command and runs it.

A command is a module with `NAME`, `HELP`, `EXAMPLES`, `add_arguments(parser)` and `run(args)`.
`run` returns an exit code and raises UsageError for invalid arguments. If the module sets
`IN_CHILD`, the command runs in a child process.
"""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
from collections.abc import Sequence
from types import ModuleType
from typing import NoReturn

from tidegauge._build_info import __version__
from tidegauge._util.suggestions import did_you_mean
from tidegauge.cli import (
    calibrate,
    completion,
    devices,
    diff,
    doctor,
    estimate,
    export,
    info,
    merge,
    plan,
    rehearse,
    replay,
    report,
    run,
    standin,
    watch,
)
from tidegauge.cli.child import run_in_child
from tidegauge.cli.common import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_USAGE,
    UsageError,
    flush_output,
    print_line,
)
from tidegauge.errors import FormatError, TorchError

COMMANDS: tuple[ModuleType, ...] = (
    *(estimate, plan, rehearse, run, watch, report, diff, merge, info, replay, export, devices),
    *(calibrate, completion, doctor, standin),
)
_RUN_A_SCRIPT = (run.NAME, rehearse.NAME)


class _Parser(argparse.ArgumentParser):
    """Reports wrong usage in one line: the usage of a command would be longer than a screen."""

    def error(self, message: str) -> NoReturn:
        print_line(f"{message} (see `{self.prog} --help`)")
        self.exit(EXIT_USAGE)

    def refuse(self, words: Sequence[str]) -> NoReturn:
        """Reports words that this command does not know."""
        if words[0].startswith("-"):
            name = words[0].partition("=")[0]
            options = [option for option in self._option_string_actions if option[:2] == "--"]
            alike = did_you_mean(name, options)
            hint = alike if alike.startswith("did") else "it is not an option of this command"
            self.error(f"unknown option '{name}': {hint}")
        self.error(f"unexpected argument '{words[0]}'")


def make_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="tidegauge", description="Shows where the memory of a PyTorch training run goes."
    )
    parser.add_argument("--version", action="version", version=f"tidegauge {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command", required=True)
    for module in COMMANDS:
        command = commands.add_parser(
            module.NAME,
            help=module.HELP,
            description=textwrap.fill(module.HELP, 78),
            usage=getattr(module, "USAGE", None),
            epilog=f"examples:\n{module.EXAMPLES}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(command)
        command.set_defaults(run=module.run, in_child=getattr(module, "IN_CHILD", False))
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code. argparse itself exits with code 2.

    With an explicit `argv` it never forks: the process belongs to the caller.
    """
    words = [*(sys.argv[1:] if argv is None else argv)]
    parser = make_parser()
    names = [module.NAME for module in COMMANDS]
    if words and not words[0].startswith("-") and words[0] not in names:
        parser.error(f"unknown command '{words[0]}': {did_you_mean(words[0], names)}")
    if words and words[0] in _RUN_A_SCRIPT:
        command = completion.find_commands(parser).choices[words[0]]
        words[1:] = run.complete_arguments(command, words[1:])
    args, unknown = parser.parse_known_args(words)
    if unknown:
        command = completion.find_commands(parser).choices[args.command]
        assert isinstance(command, _Parser)
        command.refuse(unknown)
    args.parser = parser
    args.owns_process = argv is None
    args.argv = sys.argv[1:] if argv is None else list(argv)
    return run_in_child(args, _run) if args.in_child and args.owns_process else _run(args)


def _run(args: argparse.Namespace) -> int:
    try:
        code: int = args.run(args)
        if args.command not in _RUN_A_SCRIPT:  # its output is the script's, which may close it
            flush_output()
        return code
    except UsageError as error:
        return _fail(error, EXIT_USAGE)
    except (FormatError, NotImplementedError, TorchError) as error:
        return _fail(error, EXIT_FAILED)
    except KeyboardInterrupt:
        return _fail("interrupted", EXIT_INTERRUPTED)
    except BrokenPipeError:
        # The reader of our output stopped, as `head` does. Python would complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except OSError as error:
        name = f"{error.filename}: " if error.filename else ""
        return _fail(f"{name}{error.strerror or error}", EXIT_FAILED)
    except MemoryError:
        return _fail("out of memory; use a machine with more, or a smaller file", EXIT_FAILED)
    except Exception as error:
        if os.environ.get("TIDEGAUGE_DEBUG"):
            raise
        return _fail(
            f"internal error: {type(error).__name__}: {str(error)[:300]}; please report it with "
            "what TIDEGAUGE_DEBUG=1 prints",
            EXIT_FAILED,
        )


def _fail(error: Exception | str, code: int) -> int:
    print_line(str(error))
    return code
