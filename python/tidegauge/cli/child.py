# SPDX-License-Identifier: BSD-3-Clause
"""Runs a command in a child process, so that a crash of the simulated GPU can be reported.

The child is forked before torch is loaded: there are no threads yet that a fork would lose, and
torch is loaded once.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import suppress

from tidegauge.cli.common import EXIT_FAILED, flush_output, print_line

_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL)
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_in_child(args: argparse.Namespace, run: Callable[[argparse.Namespace], int]) -> int:
    """Returns the exit code of `run`, or 128 plus the signal that ended it, as shells do.

    `args.folder` holds temporary files and is removed however the child ends.
    """
    with tempfile.TemporaryDirectory(prefix="tidegauge-") as args.folder:
        code = fork_and_wait(lambda: run(args))
    if code >= 0:
        return code
    hint = "; the machine may be out of memory" if -code == signal.SIGKILL else ""
    if -code in _CRASHES and args.simulate == "cuda":
        hint = "; for a rougher estimate with CPU kernels use --simulate cpu"
    print_line(f"the simulation was killed by {describe_signal(-code)}{hint}")
    return 128 - code


def fork_and_wait(run: Callable[[], int]) -> int:
    """Returns the result of `run` in a child, or minus the signal that ended the child."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # the parent process may have ignored it
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
        # The kernel (si_pid 0) sends Ctrl-C to the child too; do not send it twice.
        if came.si_signo != signal.SIGCHLD and came.si_pid:
            os.kill(child, came.si_signo)
    while signal.sigtimedwait(awaited, 0):
        pass  # drop signals that came too late to be forwarded
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return os.waitstatus_to_exitcode(status)


def _run_and_exit(run: Callable[[], int]) -> None:
    """Skips Python's own shutdown, which could still crash after the result is written."""
    code = EXIT_FAILED
    try:
        code = run()
        flush_output()
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(AttributeError, OSError, ValueError):  # it may be closed
            sys.stderr.flush()
        os._exit(code)


def describe_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # real-time signals have no names
        return f"signal {number}"
