# SPDX-License-Identifier: BSD-3-Clause
"""Threads that ask to be seen by trackers, because they were there before."""

from __future__ import annotations

import threading

from tidegauge import _C
from tidegauge._torch.op_patches import FOR_THREADS


class _Attachment:
    """Keeps the patches of attached threads in place as long as it lives."""

    def __init__(self) -> None:
        FOR_THREADS.install()

    def __del__(self) -> None:
        FOR_THREADS.uninstall()


class _Attachments(threading.local):
    """Those of the calling thread; gone with it."""

    def __init__(self) -> None:
        self.all: list[_Attachment] = []


_attachments = _Attachments()


def attach_thread() -> None:
    """From now on every tracker that is entered, by whatever thread, sees the calling one, too.

    As it does the thread that entered it, and those that start meanwhile. Counted.
    """
    _C.attach_thread()
    _attachments.all.append(_Attachment())


def detach_thread() -> None:
    """Takes one `attach_thread` of this thread back. ValueError if there was none."""
    _C.detach_thread()
    _attachments.all.pop()
