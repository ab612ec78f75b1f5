# SPDX-License-Identifier: BSD-3-Clause
"""`tidegauge standin build`: builds the stand-in for CUDA that `rehearse` uses."""

from __future__ import annotations

import argparse

from tidegauge.cli.common import EXIT_DONE, add_verbosity

NAME = "standin"
HELP = "build the stand-in for CUDA that `rehearse` uses, or show where it is"
EXAMPLES = """\
  tidegauge standin build
  tidegauge standin show
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action", choices=("build", "show"), help="build it for the installed torch, or show it"
    )
    add_verbosity(parser)


def run(args: argparse.Namespace) -> int:
    from tidegauge import standin

    found = standin.build() if args.action == "build" else standin.find_built()
    if found is None:
        print("not built; run: tidegauge standin build")
        return EXIT_DONE
    print(found.folder)
    if args.verbose:
        print("\n".join(file.name for file in found.libraries))
    return EXIT_DONE
