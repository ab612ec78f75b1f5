# SPDX-License-Identifier: BSD-3-Clause
"""Notifies trackers of each optimizer that is created, and estimators of each step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import optim

from tidegauge._torch.containment import describe, warn
from tidegauge._torch.patching import GlobalHook, Installation, Patch

_originals: dict[str, Callable[..., Any]] = {}


def _tracked_init(self: optim.Optimizer, *args: Any, **kwargs: Any) -> None:
    _originals["init"](self, *args, **kwargs)
    for tracker in FOR_OPTIMIZERS.users():
        try:
            tracker.track_external(self)
        except Exception as error:  # an optimizer unlike torch's own; the training continues
            warn(f"tidegauge cannot track {type(self).__name__}: {describe(error)}")


# Its users are trackers, which track each optimizer that is created.
FOR_OPTIMIZERS = Installation(
    {"init": Patch("torch.optim:Optimizer.__init__", _tracked_init, is_named=True)},
    variables=_originals,
    feature="tracking of optimizers",
)


def _step_ended(*_: Any) -> None:
    for user in FOR_STEPS.users():
        user._step_ends()


# Its users have `_step_ends`, which is called after each optimizer step.
FOR_STEPS = Installation(
    {},
    variables={},
    hooks=[GlobalHook("torch.optim.optimizer:register_optimizer_step_post_hook", _step_ended)],
    feature="RuntimeEstimator",
)
