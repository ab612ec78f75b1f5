# SPDX-License-Identifier: BSD-3-Clause
"""The counting CPU allocator of counting_allocator.cpp, built once into build/."""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("counting_allocator.cpp")
BUILD = Path(__file__).parents[3] / "build" / "counting_allocator"


@functools.cache
def _library() -> ctypes.CDLL:
    import torch
    from torch.utils import cpp_extension

    folder = BUILD / torch.__version__
    folder.mkdir(parents=True, exist_ok=True)
    # ninja is in the interpreter's environment, which may not be on PATH.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    path = cpp_extension.load(
        name="counting_allocator",
        sources=[str(SOURCE)],
        # Without NDEBUG, torch's headers check invariants that its release build does not maintain.
        extra_cflags=["-O1", "-std=c++20", "-DNDEBUG"],
        build_directory=str(folder),
        is_python_module=False,
    )
    library = ctypes.CDLL(str(path or folder / "counting_allocator.so"))
    library.counting_op_of_peak.restype = ctypes.c_char_p
    library.counting_set_logging.argtypes = [ctypes.c_bool]
    return library


@dataclass(frozen=True)
class Counts:
    """Bytes of all blocks that the CPU allocator allocated while it was counted."""

    live_bytes: int
    storage_bytes: int
    """without the 8 bytes of each Python number passed to an operator"""
    peak_bytes: int
    """including the workspace of kernels"""
    storage_peak_bytes: int
    """peak of `storage_bytes` at the ends of operators, when no kernel has workspace"""
    allocations: int
    """since the last restart"""
    log_lines: int


@dataclass(frozen=True)
class Probed:
    """The results of a probe, compared with the live bytes at every event of the allocator."""

    events: int
    disagreements: int
    first_believed_bytes: int = 0
    first_live_bytes: int = 0


Probe = ctypes.CFUNCTYPE(ctypes.c_int64)


class CountingAllocator:
    """Use `counting()` to make one."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def read(self) -> Counts:
        numbers = (ctypes.c_int64 * 6)()
        self._library.counting_read(numbers)
        return Counts(*numbers)

    def restart(self) -> None:
        """Resets peaks to the live bytes, and clears the number of allocations and the log."""
        self._library.counting_restart()

    @contextmanager
    def probing(self, believed_bytes: Callable[[], int]) -> Iterator[None]:
        """Calls the probe before each allocation and after each free, in the same thread."""
        probe = Probe(believed_bytes)
        self._library.counting_set_probe(probe)
        try:
            yield
        finally:
            self._library.counting_set_probe(Probe())

    def probed(self) -> Probed:
        numbers = (ctypes.c_int64 * 4)()
        self._library.counting_read_probe(numbers)
        return Probed(*numbers)

    def op_of_peak(self) -> str:
        """The operator whose kernel ran when `peak_bytes` was reached."""
        name: bytes = self._library.counting_op_of_peak()
        return name.decode()

    def log(self) -> list[tuple[int, int]]:
        """(n, bytes) is the n-th allocation since the restart, (n, -bytes) the free of that block;
        n is -1 for an earlier block."""
        numbers = (ctypes.c_int64 * (2 * self.read().log_lines))()
        self._library.counting_read_log(numbers)
        return list(zip(numbers[::2], numbers[1::2], strict=True))


@contextmanager
def counting(*, log: bool = False) -> Iterator[CountingAllocator]:
    """Counts allocations of the CPU allocator in the context. Blocks may be freed after it."""
    library = _library()
    library.counting_install()
    library.counting_set_logging(log)
    library.counting_restart()
    try:
        yield CountingAllocator(library)
    finally:
        library.counting_set_logging(False)
        library.counting_uninstall()
