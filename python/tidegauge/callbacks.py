# SPDX-License-Identifier: BSD-3-Clause
"""Logs current and peak memory by category after each step, to any logger.

    with tidegauge.callbacks.LoopLogger(run.log) as memory:      # a plain loop; run.log(dict)
        for batch in batches:
            train_step(batch)
            memory.log_step()

    tidegauge.callbacks.TrainerLogger.add_to(trainer)                        # Hugging Face
    lightning.Trainer(..., callbacks=[tidegauge.callbacks.LightningLogger()])

A `log` is a function of a dictionary, an object with `log(dict)`, or a TensorBoard SummaryWriter.
The names are `memory/cuda:0/peak/total`, `memory/cuda:0/current/Parameter` and so on; the values
are bytes. Peaks are those since the step before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Self

from tidegauge._torch.entering import Entering
from tidegauge.trackers.script_tracker import ScriptTracker

Log = Callable[[dict[str, float]], object]


class MemoryLogger(Entering):
    """Tracks from `start` to `stop` and makes the figures of each step."""

    def __init__(self, *external: Any) -> None:
        self._external = external
        self._tracker: ScriptTracker | None = None

    def start(self) -> None:
        """Does nothing if it is running."""
        if self._depth == 0:
            self.__enter__()

    def stop(self) -> None:
        """Does nothing if it is not running."""
        if self._depth > 0:
            self.__exit__()

    def _set_depth(self, depth: int) -> None:
        if depth > 0 and self._tracker is None:
            self._tracker = ScriptTracker()
            self._tracker.track_external(*self._external)
        if self._tracker is not None:
            self._tracker._set_depth(depth)
        if depth == 0:
            self._tracker = None
        self._depth = depth

    def take(self) -> dict[str, float]:
        """The figures since the last call, by name. Restarts the peaks."""
        if self._tracker is None:
            return {}
        native = self._tracker._native
        figures: dict[str, float] = {}
        for kind, splits in (("current", native.splits(False)), ("peak", native.splits(True))):
            for device, split in splits.items():
                figures.update(_name(f"memory/{device}/{kind}", split))
        native.restart_peak()
        return figures


def _name(prefix: str, split: Mapping[str, int]) -> dict[str, float]:
    named = {f"{prefix}/{category}": float(size) for category, size in split.items() if size}
    return {f"{prefix}/total": float(sum(split.values())), **named}


def find_log(log: Any, step: Callable[[], int]) -> Log:
    """The function that takes a dictionary. Raises TypeError if `log` cannot log."""
    if hasattr(log, "add_scalar"):  # a SummaryWriter
        return lambda figures: [log.add_scalar(*each, step()) for each in figures.items()]
    if callable(getattr(log, "log", None)):
        found: Log = log.log
        return found
    if callable(log):
        called: Log = log
        return called
    raise TypeError(
        f"cannot log to a {type(log).__name__} (expected a function of a dictionary, an object "
        "with log(dict), or a SummaryWriter)"
    )


class LoopLogger(Entering):
    """For a plain loop: a context manager; call `log_step` after each step."""

    def __init__(self, log: Any, *external: Any) -> None:
        self.step = 0
        self._log = find_log(log, lambda: self.step)
        self._memory = MemoryLogger(*external)

    def _set_depth(self, depth: int) -> None:
        self._memory._set_depth(depth)
        self._depth = depth

    def log_step(self) -> None:
        self.step += 1
        self._log(self._memory.take())


def _make_trainer_logger() -> type:
    from transformers import TrainerCallback

    class TrainerLogger(TrainerCallback):
        """For Hugging Face's Trainer: adds the figures to what it logs.

        `add_to` makes them visible to all integrations. In `Trainer(callbacks=[...])` it comes
        after the integrations; then the figures are in the Trainer's history only.
        """

        def __init__(self) -> None:
            self._memory = MemoryLogger()

        @classmethod
        def add_to(cls, trainer: Any) -> Self:
            """Adds a new one to the Trainer, before all others."""
            made = cls()
            trainer.callback_handler.callbacks.insert(0, made)
            return made

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self._memory = MemoryLogger(kwargs.get("model"))
            self._memory.start()

        def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            figures = self._memory.take()
            kwargs["logs"].update(figures)
            state.log_history[-1].update(figures)  # the Trainer has copied the logs before

        def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self._memory.stop()

    return TrainerLogger


def _make_lightning_logger() -> type:
    is_new = find_spec("lightning") is not None  # the name since 2.0
    base: Any = import_module("lightning.pytorch" if is_new else "pytorch_lightning").Callback

    class LightningLogger(base):  # type: ignore[misc]
        """For Lightning: logs through `trainer.logger` after each batch."""

        def __init__(self) -> None:
            self._memory = MemoryLogger()

        def on_fit_start(self, trainer: Any, module: Any) -> None:
            self._memory = MemoryLogger(module)
            self._memory.start()

        def on_train_batch_end(self, trainer: Any, *args: Any) -> None:
            figures = self._memory.take()
            for logger in trainer.loggers:
                logger.log_metrics(figures, step=trainer.global_step)

        def on_exception(self, trainer: Any, module: Any, exception: BaseException) -> None:
            self._memory.stop()  # Lightning calls no `teardown` then

        def teardown(self, trainer: Any, module: Any, stage: str) -> None:
            self._memory.stop()

    return LightningLogger


_MADE = {"TrainerLogger": _make_trainer_logger, "LightningLogger": _make_lightning_logger}


def __getattr__(name: str) -> Any:
    """Makes a class when it is first used, because its base class may not be installed."""
    if name not in _MADE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    made = _MADE[name]()
    globals()[name] = made
    return made
