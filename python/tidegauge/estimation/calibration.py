# SPDX-License-Identifier: BSD-3-Clause
"""Fits the constants of a device to what was measured on it."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidegauge import _core
from tidegauge._util.files import MAX_TEXT_BYTES, read_file
from tidegauge.errors import FormatError
from tidegauge.estimation.step_record import StepRecord
from tidegauge.planning.speed import Speed

# The parts of the peaks that programs reach. A measured step scales all of them.
_SHARES = ("matmul_share", "attention_share", "convolution_share", "memory_share")
_TIMINGS_FORMAT = "tidegauge op timings 1"
_SHARE_OF_KIND = {
    "matmul": "matmul_share",
    "attention": "attention_share",
    "convolution": "convolution_share",
    "memory": "memory_share",
}
_PEAKS = {"float32": "single_flops", "bfloat16": "bfloat_flops"}
_LEAST_FACTOR, _MOST_FACTOR = 0.01, 10.0
# No device is faster than its data sheet by more than its clock varies.
_MOST_SHARE = 1.1


@dataclass(frozen=True)
class Measured:
    """A measured step: nanoseconds, or tokens per second on each device."""

    text: str
    step_ns: float | None = None
    tokens_per_second: float | None = None

    def find_ns(self, tokens: float | None) -> float:
        """`tokens`: of a step on one device. Raises ValueError if they are needed and unknown."""
        if self.step_ns is not None:
            return self.step_ns
        assert self.tokens_per_second is not None
        if tokens is None:
            raise ValueError(
                f"{self.text} cannot be used, because the target does not say what a token is (it "
                "has no settings batch and seq); give the time of a step, e.g. --measured 850ms"
            )
        return tokens / self.tokens_per_second * 1e9


_UNITS_NS = {"us": 1e3, "ms": 1e6, "s": 1e9}


def parse_measured(text: str) -> Measured:
    """`850ms`, `0.85 s` or `5762tok/s`. Raises ValueError."""
    match = re.fullmatch(r"([\d,]*\.?\d+)\s*(us|ms|s|tok/s|tokens/s)", text.strip())
    value = float(match[1].replace(",", "")) if match else 0.0
    if match is None or not 0 < value < 1e15:
        raise ValueError(
            f"invalid measured step '{text}' (expected its time, e.g. 850ms or 1.2s, or tokens per "
            "second and device, e.g. 5762tok/s)"
        )
    if match[2] in _UNITS_NS:
        return Measured(text, step_ns=value * _UNITS_NS[match[2]])
    return Measured(text, tokens_per_second=value)


def fit_step(step: StepRecord, speed: Speed, measured_ns: float, calibration: str) -> Speed:
    """Multiplies what programs reach of the peaks by the one factor that makes the modelled step as
    long as the measured one. Raises ValueError if there is none that is plausible.
    """
    known = {**_core.speed_constants(speed.device), **dict(speed.constants)}

    def scale(factor: float) -> Speed:
        return speed.change(
            {**dict(speed.constants), **{name: known[name] * factor for name in _SHARES}},
            calibration,
        )

    def find_ns(factor: float) -> float:
        return step.time(scale(factor))["total_ns"]

    most = _MOST_SHARE / max(known[name] for name in _SHARES)
    fastest, slowest = find_ns(most), find_ns(_LEAST_FACTOR)
    if not fastest <= measured_ns <= slowest:
        modelled = find_ns(1.0)
        limit = (
            f"the device cannot take less than {_render(fastest)} for it"
            if measured_ns < fastest
            else f"that is {measured_ns / modelled:,.0f} times the modelled {_render(modelled)}"
        )
        raise ValueError(
            f"a measured step of {_render(measured_ns)} cannot calibrate {speed.device}: {limit}; "
            "check the device, the plan and the batch"
        )
    if slowest < 1.05 * fastest:
        raise ValueError(
            f"the step of {_render(measured_ns)} is too small to calibrate {speed.device}: the "
            "host or the network decides how long it takes; measure one with more work"
        )
    return scale(_bisect(find_ns, measured_ns, _LEAST_FACTOR, most))


def _bisect(find_ns: Callable[[float], float], wanted_ns: float, low: float, high: float) -> float:
    """`find_ns` falls."""
    for _ in range(60):
        middle = math.sqrt(low * high)
        if find_ns(middle) > wanted_ns:
            low = middle
        else:
            high = middle
    return high


def fit_timings(path: str, speed: Speed) -> Speed:
    """From a file that examples/python/time_ops.py wrote: for each kind of op, the median part of
    the peak that its calls reach. Raises FormatError for another file, ValueError for timings that
    do not belong to this device.
    """
    name, rows = _read_timings(path)
    known = _core.speed_constants(speed.device)
    reached: dict[str, list[float]] = defaultdict(list)
    for kind, dtype, flops, size_bytes, ns in rows:
        peak = known[_PEAKS.get(dtype, "half_flops")]
        if kind == "launch":
            reached["kernel_ns"].append(ns)
        elif kind == "memory":
            reached["memory_share"].append(size_bytes / (known["memory_bytes"] * ns / 1e9))
        else:
            reached[_SHARE_OF_KIND[kind]].append(flops / (peak * ns / 1e9))
    found = {constant: statistics.median(values) for constant, values in reached.items()}
    for constant, value in found.items():
        if constant != "kernel_ns" and not 0.001 < value <= _MOST_SHARE:
            raise ValueError(
                f"{path} does not fit {speed.device}: its ops reach {value:.1%} of the peak "
                f"({constant}); it was measured on {name}"
            )
    return speed.change({**dict(speed.constants), **found}, f"op timings of {name}")


_Timing = tuple[str, str, float, float, float]


def _read_timings(path: str) -> tuple[str, list[_Timing]]:
    advice = "write it with examples/python/time_ops.py"
    try:
        whole = json.loads(read_file(path, MAX_TEXT_BYTES, advice))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise FormatError(f"{path} holds no op timings: {error}; {advice}") from None
    if not isinstance(whole, dict) or whole.get("format") != _TIMINGS_FORMAT:
        raise FormatError(f"{path} holds no op timings ('{_TIMINGS_FORMAT}'); {advice}")
    ops, name = whole.get("ops"), whole.get("device")
    if not isinstance(ops, list) or not ops or not isinstance(name, str):
        raise FormatError(f"{path} has no list of ops or no device; {advice}")
    return name, [_read_timing(each, f"{path}, op {i}", advice) for i, each in enumerate(ops)]


def _read_timing(row: Any, where: str, advice: str) -> _Timing:
    kind = row.get("kind") if isinstance(row, dict) else None
    if kind not in (*_SHARE_OF_KIND, "launch"):
        raise FormatError(f"{where}: unknown kind {kind!r}; {advice}")
    needed = {"memory": ("bytes", "ns"), "launch": ("ns",)}.get(kind, ("flops", "ns"))
    for name in needed:
        value = row.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e30:
            raise FormatError(
                f"{where}: {name} is {value!r} (expected a positive number); {advice}"
            )
    numbers = [float(row[name]) if name in needed else 0.0 for name in ("flops", "bytes", "ns")]
    return kind, str(row.get("dtype")), numbers[0], numbers[1], numbers[2]


def _render(ns: float) -> str:
    return f"{ns / 1e6:,.1f} ms"
