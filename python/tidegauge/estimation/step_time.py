# SPDX-License-Identifier: BSD-3-Clause
"""How long a simulated step takes on a device, and where the time goes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tidegauge.estimation.step_record import Slice, StepRecord
from tidegauge.planning.speed import Speed

_NS_PER_MS = 1e6
_COMPUTE_STREAM = 0
# What src/plan/op_cost.cpp models, and the ops of them that it does not.
_KNOWN_LIBRARIES = ("aten", "c10d", "_c10d_functional", "fsdp", "prims", "profiler")
_UNMODELLED = ("linalg_", "_linalg_", "fft_", "_fft_", "_cudnn_rnn", "cholesky", "geqrf", "ormqr")


@dataclass(frozen=True)
class ModuleTime:
    """The compute stream's time for the ops of a module; `own_ms`: without its submodules."""

    name: str
    total_ms: float
    own_ms: float


@dataclass(frozen=True)
class OpTime:
    """All calls of an op in a step, on all streams."""

    op: str
    calls: int
    ms: float


@dataclass(frozen=True)
class StepTime:
    """The modelled time of a step on one device (docs/plan.md, "Times").

    `low_ms` and `high_ms`: what to expect of the real time. The parts from `forward_ms` to
    `idle_ms` are those of the compute stream. `exposed_ms`: it waits for communication;
    `idle_ms`: it waits for the host. `communication_ms`: of all collectives, hidden or not.
    `tokens_per_second`: on each device; None if the target has no settings batch and seq. `mfu`:
    the flops of products without recompute, as a fraction of what the device could do.
    `modules` and `ops`: the most time first. `unknown_ops`: those of `ops` that may compute, but
    have no model of it, so they count as much as their bytes. `basis`: what the figures rest on.
    """

    device: str
    basis: str
    is_calibrated: bool
    ms: float
    low_ms: float
    high_ms: float
    forward_ms: float
    backward_ms: float
    recompute_ms: float
    optimizer_ms: float
    exposed_ms: float
    idle_ms: float
    communication_ms: float
    flops: int
    recompute_flops: int
    mfu: float
    tokens_per_second: float | None
    modules: tuple[ModuleTime, ...]
    ops: tuple[OpTime, ...]
    unknown_ops: tuple[OpTime, ...]


def find_step_time(step: StepRecord, speed: Speed, tokens: float | None) -> StepTime:
    """`tokens`: that one device processes in a step."""
    time = step.time(speed)
    total_ns = time["total_ns"]
    low, high = speed.band
    parts = ("forward", "backward", "recompute", "optimizer", "exposed", "idle", "communication")
    slices = step.slices(speed)
    ops = _sum_ops(slices, step.op_names())
    return StepTime(
        device=speed.device,
        basis=speed.describe(),
        is_calibrated=bool(speed.calibration),
        ms=total_ns / _NS_PER_MS,
        low_ms=total_ns * low / _NS_PER_MS,
        high_ms=total_ns * high / _NS_PER_MS,
        flops=int(time["flops"]),
        recompute_flops=int(time["recompute_flops"]),
        mfu=time["ideal_ns"] / total_ns if total_ns else 0.0,
        tokens_per_second=tokens / total_ns * 1e9 if tokens and total_ns else None,
        modules=_sum_modules(slices, step.module_names()),
        ops=ops,
        unknown_ops=tuple(each for each in ops if _is_unknown(each.op)),
        **{f"{part}_ms": time[f"{part}_ns"] / _NS_PER_MS for part in parts},
    )


def count_tokens(settings: Mapping[str, Any], batches: int, ranks: int) -> float | None:
    """The tokens of a step on each of `ranks` devices that share a batch. None if the target does
    not say what a token is: it has no settings batch and seq.
    """
    batch, seq = settings.get("batch"), settings.get("seq")
    if type(batch) is not int or type(seq) is not int:
        return None
    return batch * seq * batches / ranks


def _is_unknown(op: str) -> bool:
    library, _, name = op.partition("::")
    return library not in _KNOWN_LIBRARIES or name.startswith(_UNMODELLED)


def _sum_ops(slices: Iterable[Slice], names: list[str]) -> tuple[OpTime, ...]:
    calls: Counter[str] = Counter()
    times: defaultdict[str, float] = defaultdict(float)
    for each in slices:
        name = names[each.call]
        calls[name] += 1
        times[name] += each.end_ns - each.begin_ns
    rows = [OpTime(name, calls[name], ns / _NS_PER_MS) for name, ns in times.items()]
    return tuple(sorted(rows, key=lambda row: (-row.ms, row.op)))


def _sum_modules(slices: Iterable[Slice], names: Mapping[int, str]) -> tuple[ModuleTime, ...]:
    """The total of a module is that of all modules whose names begin with its name."""
    own: defaultdict[str, float] = defaultdict(float)
    for each in slices:
        if each.stream == _COMPUTE_STREAM and each.module:
            own[names[each.module]] += each.end_ns - each.begin_ns
    total: defaultdict[str, float] = defaultdict(float)
    known = set(names.values())
    for name, ns in own.items():
        parts = name.split(".")
        for length in range(1, len(parts) + 1):
            total[".".join(parts[:length])] += ns
    rows = [
        ModuleTime(name, ns / _NS_PER_MS, own.get(name, 0.0) / _NS_PER_MS)
        for name, ns in total.items()
        if name in known
    ]
    return tuple(sorted(rows, key=lambda row: (-row.total_ms, row.name)))
