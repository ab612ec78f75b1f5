# SPDX-License-Identifier: BSD-3-Clause
"""Reads pickles that may be hostile."""

from __future__ import annotations

import io
import pickle
from collections import defaultdict
from typing import Any

from tidegauge import _core
from tidegauge.errors import FormatError

_CLASSES = {("collections", "defaultdict"): defaultdict, ("builtins", "int"): int}


class _PlainUnpickler(pickle.Unpickler):
    """Knows no class, or only those of a defaultdict."""

    def __init__(self, data: bytes, may_have_defaultdicts: bool) -> None:
        super().__init__(io.BytesIO(data))
        self._may_have_defaultdicts = may_have_defaultdicts

    def find_class(self, module: str, name: str) -> Any:
        if self._may_have_defaultdicts and (module, name) in _CLASSES:
            return _CLASSES[module, name]
        raise FormatError("refused: it loads an object")

    def persistent_load(self, pid: Any) -> Any:
        raise FormatError("refused: it refers to objects outside the file")


def load_plain_pickle(data: bytes, *, may_have_defaultdicts: bool = False) -> Any:
    """Numbers, texts, lists, tuples and dictionaries, in bounded time and memory.

    `_core.find_pickle_fault` first checks all opcodes and refuses a pickle that names or calls
    anything, or that would need far more memory than its size, before any object is built. The
    unpickler that follows cannot import anything either. Raises FormatError.
    """
    fault = _core.find_pickle_fault(data, may_have_defaultdicts=may_have_defaultdicts)
    if fault:
        raise FormatError(fault)
    try:
        return _PlainUnpickler(data, may_have_defaultdicts).load()
    except FormatError:
        raise
    except MemoryError:
        raise FormatError("it needs more memory than this machine has") from None
    except Exception as error:
        # Damaged pickles raise nearly any exception (IndexError, KeyError, AttributeError, ...).
        text = " ".join(str(error).split()) or type(error).__name__
        raise FormatError(f"damaged, or another format ({text[:100]})") from None
