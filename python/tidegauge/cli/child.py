# SPDX-License-Identifier: BSD-3-Clause
"""A command in a child process: should simulating a GPU crash it, somebody is left to say so.

The child is forked before torch is loaded. So there are no threads yet that a fork would lose, and
nothing is loaded twice.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable

from tidegauge.cli.common import EXIT_FAILED, note

_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL)
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_in_child(args: argparse.Namespace, run: Callable[[argparse.Namespace], int]) -> int:
    """The exit code of `run`. After a crash it is run again as on the CPU, unless `args` say where.

    As a shell has it, 128 and more are signals. `args.folder` is for temporary files: it is removed
    however the child ends. `args.notes` are what a result shall tell of an earlier child.
    """
    with tempfile.TemporaryDirectory(prefix="tidegauge-") as args.folder:
        code = _fork(lambda: run(args))
    if code >= 0:
        return code
    name = _name(-code)
    if -code in _CRASHES and args.simulate is None:
        note(args, f"simulating a GPU crashed ({name}); once more as --simulate cpu")
        args.simulate, args.notes = "cpu", (f"Simulating a GPU crashed ({name}).",)
        return run_in_child(args, run)
    hint = "; the machine may be out of memory" if -code == signal.SIGKILL else ""
    print(f"tidegauge: the simulation was ended by {name}{hint}", file=sys.stderr)
    return 128 - code


def _fork(run: Callable[[], int]) -> int:
    """What `run` returned in a child, or minus the signal that ended it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # whoever started us may ignore it
    awaited = (*_PASSED_ON, signal.SIGCHLD)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        _run_and_exit(run)
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        came = signal.sigwaitinfo(awaited)
        # Ctrl-C comes from the kernel (0), which tells the child as well: twice would be too much.
        if came.si_signo != signal.SIGCHLD and came.si_pid:
            os.kill(child, came.si_signo)
    while signal.sigtimedwait(awaited, 0):
        pass  # the child has ended as it was told
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return os.waitstatus_to_exitcode(status)


def _run_and_exit(run: Callable[[], int]) -> None:
    """Without what else Python does at its end: the result is out, and shall not crash any more."""
    code = EXIT_FAILED
    try:
        code = run()
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # those for real time have no names
        return f"signal {number}"
