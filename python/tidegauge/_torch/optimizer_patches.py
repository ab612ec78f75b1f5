# SPDX-License-Identifier: BSD-3-Clause
"""Notifies listeners of each optimizer that is created."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import optim

from tidegauge._torch.patching import Installation, Patch

Listener = Callable[[optim.Optimizer], None]

_listeners: list[Listener] = []
_originals: dict[str, Callable[..., Any]] = {}


def _tracked_init(self: optim.Optimizer, *args: Any, **kwargs: Any) -> None:
    _originals["init"](self, *args, **kwargs)
    for listener in list(_listeners):
        try:
            listener(self)
        except Exception as error:  # an optimizer unlike torch's own; the training continues
            warnings.warn(f"tidegauge cannot track {type(self).__name__}: {error!r}", stacklevel=2)


_FOR_OPTIMIZERS = Installation(
    {"init": Patch("torch.optim:Optimizer.__init__", _tracked_init, is_named=True)},
    variables=_originals,
    feature="tracking of optimizers",
)


@contextmanager
def notify_of_optimizers(listener: Listener) -> Iterator[None]:
    """Calls `listener` with each optimizer that is created within the context."""
    _FOR_OPTIMIZERS.install()
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)
        _FOR_OPTIMIZERS.uninstall()
