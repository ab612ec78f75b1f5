# SPDX-License-Identifier: BSD-3-Clause
"""A notebook shows the peak of a tracker or a summary as passive HTML."""

from __future__ import annotations

import dataclasses
import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
import torch.distributed as dist
from tidegauge import FSDPMemTracker, MemTracker
from tidegauge._util import notebook
from tidegauge._util.formatting import render_bytes
from tidegauge._util.notebook import render_peaks
from tidegauge.report import StepPeak, Summary, read_summary
from tidegauge.report.page import Page
from torch.testing._internal.distributed.fake_pg import FakeStore
from traces import Net, make_sharded, train_sharded

HOSTILE = '<script>alert("1")</script>&\'"><img src=x onerror=1>\u202e'


def parse(html: str) -> ElementTree.Element:
    """Checks that the HTML is well-formed and contains only passive elements."""
    root = ElementTree.fromstring(html)
    allowed = {"div", "p", "b", "svg", "rect", "title", "table", "tr", "td", "span"}
    assert {element.tag for element in root.iter()} <= allowed
    for element in root.iter():
        assert not any(name.startswith("on") or name in ("href", "src") for name in element.attrib)
        assert "url(" not in element.get("style", "")
    HTMLParser().feed(html)
    return root


def read_table(root: ElementTree.Element) -> list[tuple[str, str, str]]:
    return [
        tuple("".join(cell.itertext()) for cell in row)  # type: ignore[misc]
        for row in root.iter("tr")
    ]


def bar_widths(root: ElementTree.Element) -> list[float]:
    svg = next(root.iter("svg"))
    return [float(rect.attrib["width"]) for rect in svg.iter("rect")]


def test_tracker_shows_its_peak_by_category() -> None:
    tracker = MemTracker()
    plain = repr(tracker)
    with tracker:
        model = Net(64)
        model(torch.randn(4, 64)).sum().backward()
    root = parse(tracker._repr_html_())
    (device, split), *rest = tracker.get_tracker_snapshot("peak").items()
    assert not rest
    text = "".join(root.itertext())
    assert "MemTracker" in text
    assert f"peak on {device}: {render_bytes(split['Total'])}" in text
    expected = {
        (str(key.value), render_bytes(size))
        for key, size in split.items()
        if size and key != "Total"
    }
    assert {row[:2] for row in read_table(root)} == expected
    assert sum(bar_widths(root)) == pytest.approx(600, abs=0.1)
    assert repr(tracker) == plain


def test_tracker_without_tensors_says_so() -> None:
    assert "No memory tracked." in "".join(parse(MemTracker()._repr_html_()).itertext())


def test_fsdp_tracker_shows_its_own_categories() -> None:
    dist.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
    try:
        model, optimizer = make_sharded()
        tracker = FSDPMemTracker(model, optimizer)
        with tracker:
            train_sharded(model, optimizer)
    finally:
        dist.destroy_process_group()
    names = [row[0] for row in read_table(parse(tracker._repr_html_()))]
    assert "Sharded Param" in names
    assert "Unsharded Grad" in names


def test_summary_shows_peak_and_steps(traces: Path) -> None:
    summary = read_summary("before.tide")
    root = parse(summary._repr_html_())
    text = "".join(root.itertext())
    (peak,) = summary.peaks
    assert f"in step {peak.step}, " in text
    table = [(name, render_bytes(size)) for name, size in peak.categories.items()]
    assert [row[:2] for row in read_table(root)] == table
    assert "peaks of 3 steps on cpu, from 782 KiB to 822 KiB" in text
    _, steps = root.iter("svg")
    heights = [float(rect.attrib["height"]) for rect in steps.iter("rect")]
    sizes = [step.total_bytes for step in summary.steps]
    assert heights == pytest.approx([48 * size / max(sizes) for size in sizes], abs=0.01)
    assert repr(summary).startswith("Summary(path=")


def test_many_steps_are_few_bars_that_include_the_highest(traces: Path) -> None:
    summary = read_summary("before.tide")
    sizes = [1000] * 5000
    sizes[4321] = 2000
    steps = tuple(StepPeak(i + 1, "cpu", size, {"Temp": size}, i) for i, size in enumerate(sizes))
    html = dataclasses.replace(summary, steps=steps)._repr_html_()
    _, chart = parse(html).iter("svg")
    bars = [*chart.iter("rect")]
    assert len(bars) <= 150
    assert [bar.attrib["fill"] for bar in bars].count("#cd4d0b") == 1
    assert len(html) < 30_000


def test_names_are_escaped(traces: Path) -> None:
    html = render_peaks(HOSTILE, {HOSTILE: {HOSTILE: 1, "Temp": 2}})
    assert "<script" not in html
    assert "<img" not in html
    assert HOSTILE in "".join(parse(html).itertext())
    summary = read_summary("before.tide")
    hostile = dataclasses.replace(
        summary.peaks[0], running=((HOSTILE + "x" * 10_000, "forward"),), in_optimizer_step=False
    )
    shown: Summary = dataclasses.replace(summary, peaks=(hostile,), path=HOSTILE)
    html = shown._repr_html_()
    assert HOSTILE in "".join(parse(html).itertext())
    assert len(html) < 10_000


def test_colours_equal_those_of_the_html_report() -> None:
    rows = sorted(Page("")._header["categories"], key=lambda row: row["place"])
    assert len(rows) == 19
    shown = [(row["name"].lower(), row["colour"]) for row in rows]
    assert shown == [*notebook.category_colours().items()]


def test_text_uses_the_colour_of_the_page() -> None:
    html = render_peaks("run", {"cpu": {"Temp": 1}})
    assert set(re.findall(r"[^-]color:([^;\"]*)", html)) <= {"inherit"}
    assert "<style" not in html
