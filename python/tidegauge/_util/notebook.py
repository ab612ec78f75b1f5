# SPDX-License-Identifier: BSD-3-Clause
"""Peaks as HTML for notebooks: a bar, a table, and a chart of the steps.

The HTML becomes part of a page that we do not control. So text uses the page's colour, nothing is
loaded, no style affects the rest of the page, and names are escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from html import escape

from tidegauge._util.formatting import render_bytes, render_share, shorten

_UNKNOWN = "#888888"
_WIDTH = 600
_WIDEST_BAR = 24
_MOST_BARS = 150
# In pages without a doctype, tables inherit nothing.
_TABLE = "border-collapse:collapse;color:inherit;font:inherit;margin:0.5em 0"
_LONGEST_NAME = 120


@cache
def category_colours() -> dict[str, str]:
    """The order of charts, by lower-case name, because drop-in trackers write `OptState`."""
    from tidegauge import _core

    rows = sorted(_core.category_table(), key=lambda row: row["place"])
    return {row["name"].lower(): row["colour"] for row in rows}


def render_peaks(
    title: str,
    peaks: Mapping[str, Mapping[str, int]],
    step_peaks: Sequence[int] = (),
    step_device: str = "",
    warnings: Sequence[str] = (),
) -> str:
    """Bytes by category of each peak, and the peaks of the steps on one device, under a title.

    The key of a peak is its device, optionally with a time: `cuda:0, in step 2`.
    """
    parts = [f"<b>{_text(title)}</b>"]
    parts += [f"<p><b>{escape(warning)}</b></p>" for warning in warnings]
    for place, split in peaks.items():
        parts += _render_peak(f"peak on {place}", split)
    if not peaks:
        parts.append("<p>No memory tracked.</p>")
    parts += _render_steps(step_device, step_peaks)
    return _frame(parts)


def render_rows(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of text under a title."""
    lines = [f"<tr>{''.join(_cell(f'<b>{_text(head)}</b>', 'left') for head in heads)}</tr>"]
    lines += [f"<tr>{''.join(_cell(_text(each), 'left') for each in row)}</tr>" for row in rows]
    table = f'<table style="{_TABLE}">{"".join(lines)}</table>' if rows else ""
    return _frame([f"<b>{_text(title)}</b>", table])


def _frame(parts: Iterable[str]) -> str:
    return f'<div style="max-width:{_WIDTH}px">{"".join(parts)}</div>'


def _text(text: str) -> str:
    return escape(shorten(text, _LONGEST_NAME))


def _render_peak(title: str, split: Mapping[str, int]) -> list[str]:
    total = sum(split.values())
    order = [*category_colours()]
    sizes = {name: size for name, size in split.items() if size > 0}
    stacked = sorted(
        sizes, key=lambda name: order.index(name.lower()) if name.lower() in order else len(order)
    )
    bars, x = [], 0.0
    for name in stacked:
        width = sizes[name] / total * _WIDTH
        tip = f"{_text(name)} {render_bytes(sizes[name])}"
        bars.append(
            f'<rect x="{x:.2f}" width="{width:.2f}" height="16" fill="{_colour(name)}">'
            f"<title>{tip}</title></rect>"
        )
        x += width
    rows = [
        f"<tr>{_cell(_swatch(name) + _text(name), 'left')}{_cell(render_bytes(size))}"
        f"{_cell(render_share(size, total))}</tr>"
        for name, size in sorted(sizes.items(), key=lambda item: (-item[1], item[0]))
    ]
    return [
        f"<p>{_text(title)}: <b>{render_bytes(total)}</b></p>",
        _svg(f"{title}: {render_bytes(total)} by category", 16, bars),
        f'<table style="{_TABLE}">{"".join(rows)}</table>',
    ]


def _render_steps(device: str, sizes: Sequence[int]) -> list[str]:
    """A bar per step, the highest in another colour. With many steps, a bar shows the highest of
    several.
    """
    if len(sizes) < 2:
        return []
    each = -(-len(sizes) // _MOST_BARS)  # rounded up
    highest = [max(sizes[i : i + each]) for i in range(0, len(sizes), each)]
    most = max(highest)
    width = min(_WIDTH / len(highest), _WIDEST_BAR)
    bars = []
    for i, size in enumerate(highest):
        height = size / most * 48 if most else 0.0
        colour = 'fill="#cd4d0b"' if size == most else 'fill="currentColor" fill-opacity="0.45"'
        bars.append(
            f'<rect x="{i * width:.2f}" y="{48 - height:.2f}" width="{width * 0.8:.2f}" '
            f'height="{height:.2f}" {colour}/>'
        )
    label = (
        f"peaks of {len(sizes):,} steps on {device}, from {render_bytes(min(sizes))} to "
        f"{render_bytes(most)}"
    )
    return [f"<p>{_text(label)}</p>", _svg(label, 48, bars)]


def _svg(label: str, height: int, content: Iterable[str]) -> str:
    return (
        f'<svg role="img" aria-label="{_text(label)}" viewBox="0 0 {_WIDTH} {height}" '
        f'width="100%" height="{height}" preserveAspectRatio="none">{"".join(content)}</svg>'
    )


def _cell(content: str, align: str = "right") -> str:
    return f'<td style="text-align:{align};padding:0 1em 0 0">{content}</td>'


def _swatch(name: str) -> str:
    box = "display:inline-block;width:0.8em;height:0.8em;margin-right:0.5em"
    return f'<span style="{box};background:{_colour(name)}"></span>'


def _colour(name: str) -> str:
    return category_colours().get(name.lower(), _UNKNOWN)
