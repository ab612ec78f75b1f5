# SPDX-License-Identifier: BSD-3-Clause
"""How long the ops of a program take on a device of the catalogue."""

from __future__ import annotations

from typing import Any

import torch

from tidegauge import _C
from tidegauge.allocator.devices import device_models, find_device

#: What an op takes if no device is named and none is there.
DEFAULT_DEVICE = "h100-80g"
_NS_PER_MS = 1e6
_OP = 0  # the kind of an entry


class OpTimes:
    """Logs the ops of this thread while it is started; real, fake and simulated ones alike."""

    def __init__(self, device: str) -> None:
        self.device = device
        self._log = _C.OpLog()
        self._ms: dict[int, float] = {}  # by number of the call
        self._is_on_device: list[bool | None] = []  # the same; None: it has no tensors

    def start(self) -> None:
        self._log.start()

    def stop(self) -> None:
        self._log.stop()

    @property
    def position(self) -> int:
        return self._log.position

    def list_ops(self, begin: int, end: int) -> list[tuple[float, int]]:
        """Milliseconds of device time, and the facts of `_C.OpLog.entries`, of each entry.

        A program on the CPU counts as if it ran on the device. In one that also uses a device, ops
        on the CPU take no time of it.
        """
        for call in self._log.calls(len(self._is_on_device)):
            values = (*call.arguments, *call.results)
            on_cpu = [is_cpu for _, tensors, _ in values for _, _, is_cpu in tensors]
            self._is_on_device.append(not all(on_cpu) if on_cpu else None)
        uses_device = True in self._is_on_device
        entries = self._log.entries(begin, end)
        for place, (kind, number, _, _) in enumerate(entries, begin):
            if kind == _OP and number not in self._ms:
                self._ms[number] = self._find_ms(place)
        free = {None, False} if uses_device else {None}
        return [
            (0.0 if kind != _OP or self._is_on_device[number] in free else self._ms[number], facts)
            for kind, number, facts, _ in entries
        ]

    def _find_ms(self, place: int) -> float:
        time = self._log.time(place, place + 1, self.device)
        names = ("forward_ns", "backward_ns", "recompute_ns", "optimizer_ns", "communication_ns")
        return sum(time[name] for name in names) / _NS_PER_MS


def choose_device(gpu_type: str | None, device: str | None) -> str:
    """The key of a device in the catalogue.

    `gpu_type` may be a name such as "NVIDIA H100 80GB HBM3". Without both: the GPU that is there,
    or `DEFAULT_DEVICE`. Raises ValueError for an unknown one.
    """
    if gpu_type is not None and device is not None:
        raise ValueError(f"both gpu_type '{gpu_type}' and device '{device}' were given; name one")
    if device is not None:
        return find_device(device).key
    if gpu_type is not None:
        return _find_by_name(gpu_type) or find_device(gpu_type).key
    if torch.cuda.is_available() and not _C.simulation_is_on():
        return _find_by_name(torch.cuda.get_device_name()) or DEFAULT_DEVICE
    return DEFAULT_DEVICE


def _find_by_name(name: str) -> str | None:
    """The device with the most of its words in a name; the one with the least memory first."""
    words = _words(name)
    best: tuple[int, str] | None = None
    for model in device_models():
        known = _words(model.name)
        is_same = known[0] == words[0] if known and words else False
        if is_same:
            same = sum(word in words for word in known)
            if best is None or same > best[0]:
                best = same, model.key
    return best and best[1]


def _words(name: str) -> list[str]:
    """ "NVIDIA H100 80 GB" and "NVIDIA H100 80GB HBM3" are h100, 80gb, ..."""
    text = name.lower().replace(" gb", "gb").replace("-", " ")
    return [word for word in text.split() if word not in ("nvidia", "amd", "geforce", "instinct")]


def check_mode(estimate_mode_type: str) -> str:
    """Raises NotImplementedError for a mode that we do not have."""
    if estimate_mode_type == "operator-level-cost-model":
        return estimate_mode_type
    raise NotImplementedError(
        f"estimate_mode_type {estimate_mode_type} not supported; expected "
        "'operator-level-cost-model', which needs no device"
    )


def find_ms(log: OpTimes, func: Any, args: Any, kwargs: Any) -> tuple[Any, float]:
    """Runs an op; its result and its milliseconds."""
    begin = log.position
    result = func(*args, **(kwargs or {}))
    return result, sum(ms for ms, _ in log.list_ops(begin, log.position))
