# SPDX-License-Identifier: BSD-3-Clause
"""Keeps exceptions of our own hooks away from the training."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from tidegauge import _C

T = TypeVar("T")


def contained(function: Callable[..., T]) -> Callable[..., T | None]:
    """Counts an exception of `function` and returns None, instead of raising into the training.

    Only an interrupt by the user goes on: it is meant for the training.
    """

    @wraps(function)
    def wrapper(*args: Any) -> T | None:
        try:
            return function(*args)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            _C.hook_failed(function.__name__, error)
            return None

    return wrapper


@contained
def warn(text: str) -> None:
    """Warns, even if the program has made errors of all warnings: then it counts a failure."""
    warnings.warn(text, stacklevel=4)


def describe(error: BaseException) -> str:
    """`repr(error)`, also if it fails: programs may define their own."""
    try:
        return repr(error)
    except Exception:
        return type(error).__name__
