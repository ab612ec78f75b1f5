# SPDX-License-Identifier: BSD-3-Clause
"""Whether a run fits a device. C++ decides (tidegauge/fit.h); this module has the result types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tidegauge import _core
from tidegauge.allocator.devices import DeviceModel

Basis = Literal["measured", "simulated", "modelled", "assumed"]
VerdictName = Literal["fits", "fits after retries", "too close to call", "does not fit"]
_Row: TypeAlias = tuple[int | None, int, int | None, int | None]


@dataclass(frozen=True)
class Assumptions:
    """Memory that is not in a trace. None: a default, with a band. A number is exact.

    `context_bytes`: the CUDA context and the code of libraries; None: 500 MiB (300 to 800).
    `cublas_workspaces`: the forward and the autograd thread have one each.
    `cublas_workspace_bytes`: None: 32 MiB for compute capability 9 or higher, else 8.125 MiB.
    `communication_bytes`: NCCL's buffers; None: 512 MiB (256 to 1,024) with several ranks, else 0.
    """

    context_bytes: int | None = None
    cublas_workspaces: int = 2
    cublas_workspace_bytes: int | None = None
    communication_bytes: int | None = None

    def resolve(self, compute: int, world_size: int) -> Assumptions:
        """The assumptions with the expected value for every member."""
        return Assumptions(*_core.resolve_assumptions(self.row, compute, world_size))

    @property
    def total_bytes(self) -> int:
        """Requires resolve() to have been called."""
        assert self.context_bytes is not None
        assert self.cublas_workspace_bytes is not None
        assert self.communication_bytes is not None
        workspaces = self.cublas_workspaces * self.cublas_workspace_bytes
        return self.context_bytes + workspaces + self.communication_bytes

    @property
    def row(self) -> _Row:
        """The tuple that C++ expects."""
        return (
            self.context_bytes,
            self.cublas_workspaces,
            self.cublas_workspace_bytes,
            self.communication_bytes,
        )


@dataclass(frozen=True)
class Layer:
    """A part of the memory on a device, or the sum of the layers above it (`basis` None).

    `low_bytes` and `high_bytes` are the band of `size_bytes`.
    """

    name: str
    size_bytes: int
    basis: Basis | None
    low_bytes: int
    high_bytes: int


@dataclass(frozen=True)
class Verdict:
    """The verdict. `name` and `margin_bytes` are None without a device.

    `low_bytes` and `high_bytes` are the band of `needed_bytes`, the last layer. `failed_requests`:
    the number of requests that fail on the device with the expected assumptions. `smallest`: the
    smallest device of the catalogue that fits the upper end of the band. `assumptions`: with every
    member set.
    """

    name: VerdictName | None
    needed_bytes: int
    low_bytes: int
    high_bytes: int
    margin_bytes: int | None
    layers: tuple[Layer, ...]
    assumptions: Assumptions
    smallest: DeviceModel | None
    failed_requests: int
    device: DeviceModel | None

    @property
    def fits(self) -> bool | None:
        """True if it fits, even if only after retries; None without a device."""
        return None if self.name is None else self.name in ("fits", "fits after retries")


def judge(
    requests: _core.RunRequests,
    facts: Mapping[str, str],
    *,
    device: DeviceModel | None = None,
    alloc_conf: str | None = None,
    assumptions: Assumptions | None = None,
    catalogue: Sequence[DeviceModel] | None = None,
    tie: str | None = None,
) -> Verdict:
    """`facts`: those of the trace. `alloc_conf` None: both modes of the allocator count. `tie`
    None: the rule of the torch that recorded the trace.

    Raises ValueError for settings that torch rejects and for assumptions below 0.
    """
    given = assumptions or Assumptions()
    models = None if catalogue is None else [model.row for model in catalogue]
    try:
        found = requests.judge(
            device.row if device else None, alloc_conf, given.row, models, tie, dict(facts)
        )
    except TypeError:
        raise ValueError(f"a size exceeds 64 bits: {device}, {given}") from None
    smallest = found.pop("smallest")
    return Verdict(
        layers=tuple(Layer(*row) for row in found.pop("layers")),
        assumptions=Assumptions(*found.pop("assumptions")),
        smallest=DeviceModel(*smallest) if smallest else None,
        device=device,
        **found,
    )
