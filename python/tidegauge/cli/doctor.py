# SPDX-License-Identifier: BSD-3-Clause
"""`tidegauge doctor`: what is installed, which commands work, and what to do for the rest."""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import asdict, dataclass

from tidegauge._build_info import __version__
from tidegauge._torch import compat
from tidegauge.cli.common import EXIT_DONE, add_output, write_result

NAME = "doctor"
HELP = "say what is installed, which commands work, and what to do for the rest"
EXAMPLES = """\
  tidegauge doctor
  tidegauge doctor --json
"""


@dataclass(frozen=True)
class Finding:
    """One line: what was looked at, whether it is fine, and what is there or missing."""

    what: str
    is_fine: bool
    text: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    findings = find_all()
    if args.json:
        write_result(args, json.dumps([asdict(each) for each in findings], indent=2))
        return EXIT_DONE
    width = max(len(each.what) for each in findings)
    lines = [
        f"{'ok ' if each.is_fine else 'no '} {each.what:{width}}  {each.text}" for each in findings
    ]
    write_result(args, "\n".join(lines))
    return EXIT_DONE


def find_all() -> list[Finding]:
    from tidegauge import standin

    torch = _check("torch", lambda: _describe_torch())
    gpu = standin.find_gpu()
    cuda = _check("CUDA build", lambda: f"torch uses CUDA {standin.find_torch().cuda}")
    compiler = _check("C++ compiler", lambda: standin.find_compiler())
    built = _check("stand-in", lambda: _describe_standin(cuda.is_fine, compiler.is_fine))
    traces = "run, report, diff, merge, info, replay, export"
    return [
        Finding("tidegauge", True, f"{__version__} on Python {platform.python_version()}"),
        torch,
        cuda,
        Finding("GPU", True, gpu or "none; estimate and rehearse need none"),
        compiler,
        built,
        Finding("SQLite", True, f"{sqlite3.sqlite_version} in Python"),
        Finding("trace files", True, "report, diff, merge, info, replay, export, devices work"),
        Finding(
            "estimate, run",
            torch.is_fine,
            "work" if torch.is_fine else f"need a torch that fits; without it only {traces[5:]}",
        ),
        Finding(
            "rehearse",
            torch.is_fine,
            "works on torch's own CUDA code"
            if cuda.is_fine and (compiler.is_fine or built.is_fine)
            else "simulates only; see the lines above for what torch's own CUDA code needs",
        ),
    ]


def _check(what: str, describe: Callable[[], str]) -> Finding:
    try:
        return Finding(what, True, describe())
    except (OSError, RuntimeError, ImportError) as error:
        return Finding(what, False, " ".join(str(error).split()))


def _describe_torch() -> str:
    compat.check_torch_version()
    return f"{compat.find_torch_version()}; tidegauge was built for {compat.BUILT_FOR}"


def _describe_standin(has_cuda: bool, has_compiler: bool) -> str:
    from tidegauge import standin

    if not has_cuda:
        raise RuntimeError("needs a torch with CUDA")
    built = standin.find_built()
    if built is not None:
        return f"ready in {built.folder}"
    if not has_compiler or shutil.which("nm") is None:
        raise RuntimeError("needs a C++ compiler with binutils, e.g. `apt-get install g++`")
    return "not built yet; `rehearse` builds it at first use, or run: tidegauge standin build"
