# SPDX-License-Identifier: BSD-3-Clause
"""In a simulation, compiled functions and modules run as plain Python."""

from __future__ import annotations

import sys
from typing import Any

import torch


class EagerCode:
    """Makes compiled code run eagerly, from `begin` to `end`. Loads dynamo only if needed."""

    def __init__(self) -> None:
        self._stance: Any = None
        self.is_compiler_called = False

    def begin(self) -> None:
        if "torch._dynamo" in sys.modules:  # otherwise nothing is compiled yet
            self._apply()

    def end(self) -> None:
        """Undoes `begin`. Can be repeated after an interrupt."""
        if self._stance is not None:
            self._stance.__exit__(None, None, None)
            self._stance = None

    def note_compile(self) -> None:
        """Call when the program calls torch.compile."""
        self.is_compiler_called = True
        self._apply()

    def _apply(self) -> None:
        if self._stance is None:
            self._stance = torch.compiler.set_stance("force_eager")


#: The one of the running simulation.
running: EagerCode | None = None
