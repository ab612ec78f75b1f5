# SPDX-License-Identifier: BSD-3-Clause
"""`tidegauge run train.py`: tracks an unchanged training script.

The script runs as under plain Python: it has its own `__main__`, `sys.argv` and `sys.path[0]`, its
standard output and its exit code. Our notes come last, on standard error.
"""

from __future__ import annotations

import argparse
import atexit
import builtins
import importlib.util
import io
import json
import os
import runpy
import sys
from contextlib import suppress
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, NoReturn, Protocol

from tidegauge._util.keep import parse_keep
from tidegauge.cli.common import (
    EXIT_DOES_NOT_FIT,
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    UsageError,
    add_verbosity,
    note,
    print_error,
    print_line,
    render_bytes,
)
from tidegauge.report.holders import HOLDERS
from tidegauge.report.summary import largest_first
from tidegauge.report.text import (
    describe_failures,
    name_device,
    render_categories,
    render_report,
)

if TYPE_CHECKING:
    from tidegauge.trackers.mem_tracker import MemTracker
    from tidegauge.trackers.recorder import Recorder

NAME = "run"
HELP = "run an unchanged training script and record its memory"
USAGE = "tidegauge run [options] (script.py | -m module) [arguments ...]"
EXAMPLES = """\
  tidegauge run train.py --lr 0.1
  tidegauge run -o big_batch.tide train.py --batch 512
  tidegauge run --stacks none train.py           (without lines of the program)
  tidegauge run -m my_package.train
  tidegauge run --keep 10m train_for_weeks.py
  torchrun --nproc-per-node 2 -m tidegauge run train.py   (one file per rank)
"""

_TOP = 10
STACKS = ("none", "module", "python")
_PACKAGE = str(Path(__file__).parent.parent) + os.sep


class Session(Protocol):
    """What a command adds to a script: `begin` is called before it, `end` after it."""

    #: True if the process must end without Python's own shutdown.
    ends_process: bool

    def begin(self) -> None: ...
    def end(self) -> None: ...
    def describe(self, ran_out: bool, trace: str) -> list[str]: ...


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--allocator",
        action="store_true",
        help="count all memory from torch's CPU allocator, including memory without a tensor",
    )
    add_recording(parser)
    add_script(parser)


def add_recording(parser: argparse.ArgumentParser) -> None:
    """For commands that call `run_script`."""
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="trace file (default: the name of the script with .tide); under torchrun the rank is "
        "inserted, as in train.rank0.tide",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="replace FILE if it exists (default: number it, as in train.2.tide)",
    )
    parser.add_argument(
        "--report", action="store_true", help="print the report to standard error at the end"
    )
    parser.add_argument(
        "--html", metavar="FILE", help="write an interactive page for a browser at the end"
    )
    parser.add_argument(
        "--stacks",
        choices=STACKS,
        default="python",
        help="what to record of where memory is allocated: lines of the program (python, the "
        "default), the running modules (module) or nothing (none)",
    )
    parser.add_argument(
        "--keep",
        metavar="TIME",
        type=check_keep,
        help="for runs of days: keep the events of the last TIME (10m, 2h or 500steps) and of the "
        "steps around the peaks, so that FILE does not grow without end",
    )
    add_verbosity(parser)


def add_script(parser: argparse.ArgumentParser) -> None:
    """Must come last: everything after the script is an argument of the script."""
    parser.add_argument(
        "-m",
        dest="module",
        nargs=argparse.REMAINDER,
        metavar="module",
        help="run a module, as `python -m` does; must be the last option of tidegauge",
    )
    parser.add_argument(
        "script", nargs=argparse.REMAINDER, metavar="script.py", help="script and its arguments"
    )


def complete_arguments(parser: argparse.ArgumentParser, words: list[str]) -> list[str]:
    """`--stacks` without a value means lines. argparse would take the script for its value."""
    words = [*words]
    i = 0
    while i < len(words) and words[i].startswith("-") and words[i] != "-m":
        option = parser._option_string_actions.get(words[i])
        if words[i] == "--stacks" and not (i + 1 < len(words) and words[i + 1] in STACKS):
            words[i] = "--stacks=python"
            i += 1
        else:
            i += 1 if option is None or option.nargs == 0 else 2
    return words  # the rest belongs to the script


def check_keep(text: str) -> str:
    try:
        parse_keep(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def run(args: argparse.Namespace) -> int:
    words, is_module = read_script(args, USAGE)
    return run_script(args, words, is_module, None)


def read_script(args: argparse.Namespace, usage: str) -> tuple[list[str], bool]:
    """The script or module with its arguments; True for a module."""
    is_module = args.module is not None
    words: list[str] = args.module if is_module else args.script
    if words and words[0] == "--" and not is_module:
        words = words[1:]
    if not words or (is_module and args.script):
        raise UsageError(f"no script given; usage: {usage}")
    return words, is_module


def run_script(
    args: argparse.Namespace, words: list[str], is_module: bool, session: Session | None
) -> int:
    """Runs the script under a tracker; returns its exit code, 3 if a session ran out of memory."""
    _prepare_interpreter(words, is_module)
    return _run_tracked(args, words[0], is_module, session)


def _prepare_interpreter(words: list[str], is_module: bool) -> None:
    """Sets `sys.argv` and `sys.path` as Python would. Raises UsageError if nothing can run."""
    folder = os.getcwd()
    if not is_module:
        script = Path(words[0])
        if not script.exists():
            raise UsageError(f"no such script: {script}")
        folder = str(script.resolve() if script.is_dir() else script.resolve().parent)
    sys.argv[:] = words
    if not sys.flags.safe_path:
        sys.path[0] = folder
    if is_module:
        package = words[0].partition(".")[0]  # find_spec of a submodule would import it, untracked
        if not package or importlib.util.find_spec(package) is None:
            raise UsageError(f"no such module: {words[0]} (check the folder and PYTHONPATH)")


def name_trace(script: str, is_module: bool, output: str | None) -> str:
    """The trace file: `output` or the name of the script, with the rank if there is one."""
    if output:
        path = Path(output)
    else:
        path = Path(script.rpartition(".")[2] if is_module else Path(script).resolve().name)
        if path.name == "__main__.py":
            path = Path(Path(script).resolve().parent.name)
        path = Path(f"{path.stem if path.suffix in ('.py', '.pyc') else path.name}.tide")
    return _insert_rank(str(path if path.suffix or not _has_rank() else f"{path}.tide"))


def _has_rank() -> bool:
    return os.environ.get("RANK", "").isdecimal()


def _insert_rank(name: str) -> str:
    """`train.rank0.tide` under torchrun, otherwise `train.tide`."""
    path = Path(name)
    if not _has_rank():
        return name
    return str(path.with_name(f"{path.stem}.rank{os.environ['RANK']}{path.suffix}"))


def number_file(name: str) -> str:
    """The name if no such file exists, otherwise `train.2.tide`, `train.3.tide`, ..."""
    path, number = Path(name), 1
    candidate = path
    while os.path.lexists(candidate) and _is_regular(candidate):
        number += 1
        candidate = path.with_name(f"{path.stem}.{number}{path.suffix}")
    return str(candidate)


def _is_regular(path: Path) -> bool:
    """False for special files, e.g. /dev/null, which are written to directly."""
    return not path.exists() or path.is_file() or path.is_dir()


def _find_entry() -> str:
    """The file of the outermost frame: the program `tidegauge`."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_filename


def _run_tracked(
    args: argparse.Namespace, script: str, is_module: bool, session: Session | None
) -> int:
    from tidegauge import _C
    from tidegauge.trackers.recorder import Recorder
    from tidegauge.trackers.script_tracker import ScriptTracker

    wanted = name_trace(script, is_module, args.output)
    path = wanted if args.force else number_file(wanted)
    if path != wanted:
        note(args, f"{wanted} exists; recording to {path} (--force replaces it)")
    if args.html and not args.force:
        args.html = number_file(_insert_rank(args.html))
    if args.owns_process:
        _C.hide_frames_below([_find_entry()])
    recorder = Recorder(path, overwrite=args.force, keep=args.keep)
    if args.owns_process:
        _C.complete_recordings_at_sigterm()
    tracker = ScriptTracker(record=recorder, allocator=args.allocator, stacks=args.stacks)
    if args.verbose:
        note(args, f"recording to {path}")
    process = os.getpid()
    ran_out = False
    code = EXIT_FAILED

    def end() -> None:
        tracker.__exit__(None, None, None)
        if os.getpid() == process:  # otherwise this is a child that the script forked
            _note_holders(recorder)
            recorder.close()
            described = []
            if session is not None:
                session.end()
                described = session.describe(ran_out, recorder.path)
            _print_result(args, tracker, recorder, ran_out, described)
            _write_reports(args, recorder.path)
            if session is not None and session.ends_process and args.owns_process:
                _exit_now(code)

    if session is not None:
        session.begin()
    tracker.__enter__()
    if args.owns_process:
        # Python joins threads, then calls exit handlers, the last registered one first. So ours
        # comes after all that the script leaves to the end of the process.
        atexit.register(end)
    try:
        code, error = _run_script(script, is_module)
        ran_out = is_out_of_memory(error)
        if ran_out and session is not None:
            code = EXIT_DOES_NOT_FIT
        del error  # its traceback keeps tensors alive
    finally:
        if not args.owns_process:
            end()
    return code


def _exit_now(code: int) -> NoReturn:
    """Skips Python's own shutdown."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # the script may have closed it
            stream.flush()
    os._exit(code)


def _run_script(script: str, is_module: bool) -> tuple[int, BaseException | None]:
    """The exit code as Python would return it, and the exception that ended the script."""
    try:
        if is_module:
            runpy.run_module(script, run_name="__main__", alter_sys=True)
        else:
            _run_file(script)
    except SystemExit as end:
        return _exit_code(end), None
    except KeyboardInterrupt as error:
        _show(error)
        return EXIT_INTERRUPTED, error
    except BaseException as error:
        _show(error)
        return EXIT_FAILED, error
    return EXIT_DONE, None


def _run_file(script: str) -> None:
    """Does not use runpy, which replaces `sys.argv[0]` and removes `__main__` at the end."""
    if os.path.isdir(script):
        runpy.run_path(script, run_name="__main__")
        return
    path = os.path.abspath(script)
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    main = ModuleType("__main__")
    loader = SourceFileLoader("__main__", path)
    vars(main).update(__file__=path, __cached__=None, __loader__=loader)
    vars(main).update(__builtins__=builtins, __annotations__={})
    sys.modules["__main__"] = main
    exec(code, vars(main))


def _exit_code(end: SystemExit) -> int:
    if end.code is None:
        return EXIT_DONE
    if isinstance(end.code, int):
        return end.code
    print(end.code, file=sys.stderr)
    return EXIT_FAILED


def _show(error: BaseException) -> None:
    """Prints the traceback with the current `sys.excepthook`, without our frames."""
    with suppress(AttributeError, OSError, ValueError):  # the script may have closed it
        sys.stdout.flush()
    _forget_own_frames(error)
    sys.excepthook(type(error), error, error.__traceback__)


def _forget_own_frames(error: BaseException | None) -> None:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        error.__traceback__ = _without_own(error.__traceback__)
        error = error.__cause__ or error.__context__


def _without_own(traceback: TracebackType | None) -> TracebackType | None:
    frames = []
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if not file.startswith(_PACKAGE) and file != runpy.run_path.__code__.co_filename:
            frames.append(traceback)
        traceback = traceback.tb_next
    kept: TracebackType | None = None
    for frame in reversed(frames):
        kept = TracebackType(kept, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return kept


def is_out_of_memory(error: BaseException | None) -> bool:
    """Checks the Python types of the exceptions that src/capture/compat/out_of_memory.cpp checks;
    messages are read there."""
    import torch

    from tidegauge import _C

    while error is not None:
        if isinstance(error, torch.OutOfMemoryError | MemoryError):
            return True
        if isinstance(error, RuntimeError) and _C.is_out_of_memory(str(error)):
            return True
        error = error.__cause__  # schedules of pipelines raise errors of their own
    return False


def _note_holders(recorder: Recorder) -> None:
    """Records which containers hold many tensors. The run is over, so a failure is ignored."""
    from tidegauge.trackers.holders import find_holders

    with suppress(Exception):
        if holders := find_holders():
            recorder.set_fact(HOLDERS, json.dumps(holders))


def _write_reports(args: argparse.Namespace, path: str) -> None:
    """What `tidegauge report` would print and write. The script owns standard output."""
    if not args.report and not args.html:
        return
    from tidegauge.cli.html import make_page, read_runs, write_page

    try:
        (run,) = read_runs(args, [path])
        if args.report:
            failures = [each.render() for each in run.failures]
            print_error(render_report(run.summary, _TOP, run.memory, failures))
        if args.html:
            write_page(args, make_page(f"{path} - tidegauge", [run], [path]))
    except (OSError, ValueError) as error:  # e.g. FormatError; the exit code is the script's
        print_line(str(error))


def _print_result(
    args: argparse.Namespace,
    tracker: MemTracker,
    recorder: Recorder,
    ran_out: bool,
    described: list[str],
) -> None:
    if args.quiet:
        return
    rank = os.environ.get("RANK", "")
    prefix = f"rank {rank}: " if rank else ""
    if ran_out:
        note(args, f"{prefix}the run ran out of memory")
    peaks = tracker._native.splits(True)
    for device, split in peaks.items():
        note(
            args, f"{prefix}peak on {name_device(str(device))}: {render_bytes(sum(split.values()))}"
        )
        if rank in ("", "0"):  # one table, not one per rank
            print_error("\n".join(render_categories(largest_first(split))))
    if not peaks:
        note(args, f"{prefix}the run created no tensors")
    for sentence in described:
        note(args, f"{prefix}{sentence}")
    failures, first = tracker._native.failures()
    if failures:
        note(args, prefix + describe_failures(failures, first))
    if args.verbose:
        note(args, f"{prefix}{recorder.path} has {recorder.written_events:,} events")
        anomalies, first = tracker._native.anomalies()
        if anomalies:
            note(args, f"{prefix}{anomalies:,} events contradict others (first: {first})")
    if not args.report:
        note(args, f"{prefix}next: tidegauge report {recorder.path}")
    if rank == "0" and os.environ.get("WORLD_SIZE", "1") != "1":
        every = recorder.path.replace(".rank0.", ".rank*.")
        note(args, f"{prefix}for all ranks: tidegauge merge {every}")
