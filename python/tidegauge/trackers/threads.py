# SPDX-License-Identifier: BSD-3-Clause
"""attach_thread: lets trackers observe a thread that started before them."""

from __future__ import annotations

import threading

from tidegauge import _C
from tidegauge._torch.op_patches import FOR_THREADS


class _Attachment:
    """Keeps the patches for attached threads installed while it lives."""

    def __init__(self) -> None:
        FOR_THREADS.install(self)

    def __del__(self) -> None:
        FOR_THREADS.uninstall(self)


class _Attachments(threading.local):
    """The attachments of one thread; they end with it."""

    def __init__(self) -> None:
        self.all: list[_Attachment] = []


_attachments = _Attachments()


def attach_thread() -> None:
    """Lets every tracker observe the calling thread, no matter which thread enters the tracker.

    Trackers already observe the thread that enters them and the threads that start meanwhile. Each
    call needs one `detach_thread`.
    """
    _C.attach_thread()
    _attachments.all.append(_Attachment())


def detach_thread() -> None:
    """Undoes one `attach_thread` of this thread. Raises ValueError if there was none."""
    _C.detach_thread()
    _attachments.all.pop()
