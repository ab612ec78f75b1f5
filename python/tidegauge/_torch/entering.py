# SPDX-License-Identifier: BSD-3-Clause
"""The base of the classes whose contexts patch torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from tidegauge import _C


class Entering:
    """Its `__enter__` and `__exit__` are C++ functions, which an interrupt cannot leave half done.
    They call the two methods of the class that src/bindings/torch/entering.h names."""

    if TYPE_CHECKING:

        def __enter__(self) -> Self: ...
        def __exit__(self, *args: object) -> None: ...
    else:
        __enter__ = _C.enter
        __exit__ = _C.exit

    def _set_depth(self, depth: int) -> None:
        raise NotImplementedError

    def _depth_after_exit(self) -> int:
        raise NotImplementedError
