# SPDX-License-Identifier: BSD-3-Clause
"""The timeline and the chosen moment: contents, mouse and keyboard."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from reading import (
    OpenPage,
    chart_box,
    chosen_event,
    column,
    composition,
    drawn_colours,
    ledger_peak,
    view,
)
from tidegauge import _core
from tidegauge._util.formatting import render_bytes


@pytest.mark.parametrize("trace", ["before.tide", "sharded.tide"])
def test_peak_equals_that_of_the_ledger(open_page: OpenPage, recorded: Path, trace: str) -> None:
    page = open_page("report", trace)
    peak = ledger_peak(recorded / trace)["cpu"]
    assert int(page.get_attribute("#peak", "data-bytes")) == sum(peak.values())
    assert page.inner_text("#peak .figure") == render_bytes(sum(peak.values()))
    assert composition(page) == peak  # the page starts with the peak chosen
    assert page.get_attribute("#chart", "aria-valuetext").startswith(
        f"{render_bytes(sum(peak.values()))}, the peak, in step "
    )
    shown = page.inner_text("#composition").split("\n")
    for name, size in peak.items():
        assert name in shown
        assert render_bytes(size) in shown


def test_peak_of_every_step_equals_that_of_the_ledger(open_page: OpenPage, recorded: Path) -> None:
    page = open_page("report", "before.tide")
    steps = _core.Reader(str(recorded / "before.tide")).replay().step_peaks()
    for step, devices in steps:
        page.click(f"#steps-table button.link:text-is('{step}')")
        assert composition(page) == devices[0][4]
        assert chosen_event(page) == devices[0][1]
        assert page.evaluate("document.activeElement.id") == "chart"
    peaks = [render_bytes(sum(devices[0][4].values())) for _, devices in steps]
    assert column(page, "#steps-table", 2)[1:] == peaks


def test_totals_of_random_moments_equal_a_replay(open_page: OpenPage, recorded: Path) -> None:
    page = open_page("report", "before.tide")
    page.focus("#chart")
    page.keyboard.press("Home")
    rng = random.Random(3)
    for _ in range(15):
        for _ in range(rng.randrange(1, 25)):
            page.keyboard.press(".")
        ledger = _core.Reader(str(recorded / "before.tide")).replay(chosen_event(page))
        (now,) = (split for device, _, _, _, split in ledger.fine_current() if device == "cpu")
        assert sum(composition(page).values()) == sum(now.values())


def test_chart_draws_the_categories_at_the_peak(open_page: OpenPage, recorded: Path) -> None:
    page = open_page("report", "before.tide")
    colours = drawn_colours(page, "#chart")
    large = {"Parameter", "Optstate", "Gradient"}
    swatches = page.eval_on_selector_all(
        "#composition li",
        "rows => rows.map((row) => [row.dataset.category,"
        " getComputedStyle(row.querySelector('.swatch')).backgroundColor])",
    )
    assert large <= {name for name, colour in swatches if colour in colours}


def test_wheel_zooms_at_the_pointer(open_page: OpenPage) -> None:
    page = open_page("report", "before.tide")
    page.click("#show-all")  # a long start-up is left out of the first view
    whole = view(page)
    box = chart_box(page)
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 100)
    page.mouse.wheel(0, -200)
    near = view(page)
    assert near[1] - near[0] < 0.7 * (whole[1] - whole[0])
    assert whole[0] < near[0] < near[1] < whole[1]
    page.mouse.wheel(0, 5000)
    for _ in range(5):
        page.mouse.wheel(0, 200)
    assert view(page) == whole


def test_drag_pans_without_choosing_a_moment(open_page: OpenPage) -> None:
    page = open_page("report", "before.tide")
    chosen = chosen_event(page)
    page.click("#zoom-in")
    page.click("#zoom-in")
    before = view(page)
    box = chart_box(page)
    x, y = box["x"] + box["width"] / 2, box["y"] + 150
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 100, y, steps=4)
    page.mouse.up()
    after = view(page)
    assert after[0] < before[0]
    assert after[1] - after[0] == pytest.approx(before[1] - before[0])
    assert chosen_event(page) == chosen
    page.mouse.dblclick(x, y)
    assert view(page)[1] - view(page)[0] > before[1] - before[0]


def test_overview_moves_the_view(open_page: OpenPage) -> None:
    page = open_page("report", "before.tide")
    page.click("#zoom-in")
    page.click("#zoom-in")
    box = page.locator("#overview").bounding_box()
    page.mouse.click(box["x"] + 100, box["y"] + 20)
    left = view(page)
    page.mouse.click(box["x"] + box["width"] - 40, box["y"] + 20)
    assert view(page)[0] > left[0]


def test_hovering_shows_the_moment_and_leaving_hides_it(open_page: OpenPage) -> None:
    page = open_page("report", "before.tide")
    page.select_option("#axis", "sequence")  # times differ from run to run
    box = chart_box(page)
    page.mouse.move(box["x"] + box["width"] - 60, box["y"] + 120)
    text = page.inner_text("#tooltip")
    assert "in step 3" in text
    assert "Parameter" in text
    assert "KiB" in text
    shares = page.eval_on_selector_all(
        "#tooltip td:nth-child(3)", "cells => cells.map((cell) => parseFloat(cell.innerText))"
    )
    assert sum(shares) == pytest.approx(100, abs=0.5)
    page.mouse.move(box["x"] + 20, box["y"] + box["height"] + 400)
    assert page.is_hidden("#tooltip")


def test_click_chooses_the_moment_drawn_there(open_page: OpenPage) -> None:
    page = open_page("report", "before.tide")
    page.select_option("#axis", "sequence")  # positions on a time axis depend on the machine
    peak = chosen_event(page)
    box = chart_box(page)
    page.mouse.click(box["x"] + 120, box["y"] + 150)
    early = chosen_event(page)
    assert early < peak
    total = sum(composition(page).values())
    assert page.inner_text("#chosen-moment").startswith(
        f"{render_bytes(total)}, in step 1, forward of Net.blocks.0.0, "
    )
    page.click("#to-peak")
    assert chosen_event(page) == peak


def test_keys_choose_zoom_and_pan(open_page: OpenPage) -> None:
    page = open_page("report", "before.tide")
    peak = chosen_event(page)
    page.focus("#chart")

    def press(key: str) -> int:
        page.keyboard.press(key)
        return chosen_event(page)

    assert press("Home") < press(".") < press("ArrowRight")
    assert press("End") > peak
    assert press("p") == peak
    first = press("PageUp")
    assert "in step 1," in page.inner_text("#chosen-moment")
    assert first < press("PageDown") == peak
    press("0")
    whole = view(page)
    press("+")
    near = view(page)
    assert near[1] - near[0] == pytest.approx((whole[1] - whole[0]) / 2)
    press("Shift+ArrowLeft")
    assert view(page)[0] < near[0]
    assert chosen_event(page) == peak
    press("0")
    assert view(page) == whole
    press("ArrowUp")
    press("-")
    assert view(page) == whole


def test_axis_by_event_shows_the_same_moments(open_page: OpenPage) -> None:
    page = open_page("report", "before.tide")
    peak = composition(page)
    page.select_option("#axis", "sequence")
    first, last = view(page)
    assert first >= 1
    assert last < 600  # events, not nanoseconds
    assert composition(page) == peak
    page.focus("#chart")
    page.keyboard.press("+")
    page.keyboard.press("+")
    narrow = view(page)
    page.select_option("#axis", "time")
    page.select_option("#axis", "sequence")
    assert view(page)[0] == pytest.approx(narrow[0], abs=4)
