# SPDX-License-Identifier: BSD-3-Clause
"""The time of a step as text, at most 80 columns wide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidegauge._util.formatting import shorten
from tidegauge.estimation.step_time import ModuleTime, OpTime, StepTime
from tidegauge.report.text import wrap

_PARTS = {
    "forward": "forward_ms",
    "backward": "backward_ms",
    "recompute": "recompute_ms",
    "optimizer": "optimizer_ms",
    "exposed communication": "exposed_ms",
    "waiting for the host": "idle_ms",
}
_LEAST_SHOWN = 0.0005  # of the step


def render_ms(milliseconds: float) -> str:
    """`0.47 ms`, `23.7 ms`, `1,422 ms`"""
    if milliseconds >= 99.95:
        return f"{milliseconds:,.0f} ms"
    return f"{milliseconds:.1f} ms" if milliseconds >= 9.995 else f"{milliseconds:.2f} ms"


def render_step_time(time: StepTime) -> list[str]:
    """The answer, where the time goes, and what the figures rest on."""
    shown = [f"{name} {render_ms(ms)}" for name, ms in _list_parts(time)]
    return [
        *wrap(f"Step time: {_describe_answer(time)}"),
        *_indent(", ".join(shown)),
        *_indent(_describe_basis(time)),
        *_indent(describe_unknown(time)),
    ]


def describe_parts(time: StepTime) -> dict[str, Any]:
    """The same for the page, which `report/web/step_time.js` shows."""
    parts = [{"name": name, "ms": ms, "text": render_ms(ms)} for name, ms in _list_parts(time)]
    basis = f"{_describe_basis(time)} {describe_unknown(time)}".strip()
    return {"ms": time.ms, "answer": _describe_answer(time), "basis": basis, "parts": parts}


def _describe_answer(time: StepTime) -> str:
    """`836 ms (585 ms to 1,422 ms), 9,797 tokens/s per device, MFU 41.0%`"""
    text = f"{render_ms(time.ms)} ({render_ms(time.low_ms)} to {render_ms(time.high_ms)})"
    if time.tokens_per_second:
        text += f", {time.tokens_per_second:,.0f} tokens/s per device"
    return f"{text}, MFU {time.mfu:.1%}"


def _describe_basis(time: StepTime) -> str:
    return f"{time.basis[0].upper()}{time.basis[1:]}."


def _list_parts(time: StepTime) -> list[tuple[str, float]]:
    """Milliseconds of the compute stream; tiny ones are left out."""
    parts = [(name, float(getattr(time, part))) for name, part in _PARTS.items()]
    return [(name, ms) for name, ms in parts if ms >= _LEAST_SHOWN * time.ms]


def _indent(text: str) -> list[str]:
    return [f"  {line}" for line in wrap(text, "", 2)]


def describe_unknown(time: StepTime) -> str:
    """Ops whose time may be wrong; empty if there are none."""
    if not time.unknown_ops:
        return ""
    shown = [
        f"{each.op} ({each.calls:,} calls, {each.ms / time.ms:.1%} of the step)"
        for each in time.unknown_ops[:3]
    ]
    rest = len(time.unknown_ops) - len(shown)
    more = f" and {rest} more" if rest else ""
    names = ", ".join(shown)
    return f"Ops without a model of their compute count as much as their bytes: {names}{more}."


def render_top_times(time: StepTime, top: int) -> list[list[str]]:
    """The modules and the ops with the most time; `top` 0: all."""
    return [_render_modules(time.modules, top), _render_ops(time.ops, top)]


def _render_modules(modules: Sequence[ModuleTime], top: int) -> list[str]:
    if not modules:
        return []
    lines = [f"{'Modules by time on the compute stream':47}{'total':>11}{'own':>11}"]
    for each in modules[: top or None]:
        total, own = render_ms(each.total_ms), render_ms(each.own_ms)
        lines.append(f"  {shorten(each.name, 44):45}{total:>11}{own:>11}")
    return lines


def _render_ops(ops: Sequence[OpTime], top: int) -> list[str]:
    lines = [f"{'Ops by time on all streams':47}{'total':>11}{'calls':>11}"]
    for each in ops[: top or None]:
        lines.append(f"  {shorten(each.op, 44):45}{render_ms(each.ms):>11}{each.calls:>11,}")
    return lines
