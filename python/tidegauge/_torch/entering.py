# SPDX-License-Identifier: BSD-3-Clause
"""The bases of the classes whose contexts patch torch."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any, Self

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tidegauge import _C


class Entering:
    """Its `__enter__` and `__exit__` are C++ functions, which an interrupt cannot leave half done.
    They call the two methods of the class that src/bindings/torch/entering.h names."""

    _depth = 0

    if TYPE_CHECKING:

        def __enter__(self) -> Self: ...
        def __exit__(self, *args: object) -> None: ...
    else:
        __enter__ = _C.enter
        __exit__ = _C.exit

    def _set_depth(self, depth: int) -> None:
        raise NotImplementedError

    def _depth_after_exit(self) -> int:
        return max(0, self._depth - 1)


class EnteringMode(Entering, TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode that an interrupt cannot leave half entered."""

    _interrupted_exit: tuple[int, dict[str, Any]] | None = None

    def _set_depth(self, depth: int) -> None:
        self._push_until(depth)
        self._depth = depth

    def _push_until(self, depth: int) -> None:
        """Makes the mode `depth` times active."""
        while (pushed := self._count_pushed()) < depth:
            TorchDispatchMode.__enter__(self)  # type: ignore[no-untyped-call]
        while (pushed := self._count_pushed()) > depth:
            # torch's `__exit__` takes flags off lists before it pops the mode. After an interrupt
            # in between, the lists are restored.
            flags = {name: copy(value) for name, value in vars(self).items() if name[:4] == "old_"}
            if self._interrupted_exit is None or self._interrupted_exit[0] != pushed:
                self._interrupted_exit = pushed, flags
            for name, kept in self._interrupted_exit[1].items():
                setattr(self, name, copy(kept))
            TorchDispatchMode.__exit__(self, None, None, None)  # type: ignore[no-untyped-call]
            self._interrupted_exit = None

    def _count_pushed(self) -> int:
        stack = range(torch._C._len_torch_dispatch_stack())
        return sum(torch._C._get_dispatch_stack_at(i) is self for i in stack)
