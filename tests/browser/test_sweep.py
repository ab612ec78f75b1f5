# SPDX-License-Identifier: BSD-3-Clause
"""The plot of a sweep."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from reading import OpenPage, column, wait_for_drawing
from tidegauge._util.formatting import render_bytes
from tidegauge.cli.main import main

MODEL = Path(__file__).parents[1] / "python" / "support" / "small_model.py"
CONTRAST = Path(__file__).with_name("contrast.js")
NAME = "</text><script>boo()</script>"
VALUE = "<img src=x onerror=boo()>"


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    """A sweep with a point that fits, one too close to call and one that does not fit, twice."""
    target = tmp_path / "hostile.py"
    target.write_text(f"{MODEL.read_text()}\nSETTINGS[{NAME!r}] = 'a'\n")
    sweep = ["--sweep", "batch=4,4096,16384", "--sweep", f"{NAME}={VALUE},__proto__"]
    return ["estimate", str(target), *sweep, "--device-memory", "900MiB"]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_point_has_a_mark_with_its_bytes_and_shape(
    open_page: OpenPage, command: list[str], theme: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--json"]) == 0
    found = [point["estimate"] for point in json.loads(capsys.readouterr().out)["points"]]
    page = open_page(*command, theme=theme, width=700)
    wait_for_drawing(page)
    marks = page.eval_on_selector_all(
        "#sweep-plot .point",
        """all => all.map((one) =>
            ({ ...one.dataset, shape: one.querySelector("path").getAttribute("d") }))""",
    )
    figures = [(mark["needed"], mark["low"], mark["high"], mark["verdict"]) for mark in marks]
    names = ("needed_bytes", "low_bytes", "high_bytes", "verdict")
    assert sorted(figures) == sorted(tuple(str(each[n]) for n in names) for each in found)
    shapes = {mark["verdict"]: mark["shape"] for mark in marks}
    assert len(set(shapes.values())) == len(shapes) == 3
    assert column(page, "#sweep-table", 4) == [render_bytes(each["needed_bytes"]) for each in found]
    assert column(page, "#sweep-table", 2) == [VALUE, "__proto__"] * 3
    assert "a device like NVIDIA T4 has 900 MiB" in page.locator("#sweep-plot").text_content()
    assert f"{NAME} {VALUE}"[:27] in page.locator("#sweep-plot").text_content()
    assert page.locator("#sweep-plot polyline").count() == 2
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 1
    assert page.title() == f"estimate of {command[1]}"
    assert page.evaluate(CONTRAST.read_text())["faint"] == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_sweep_begins_with_the_run_that_its_headline_names(
    open_page: OpenPage, command: list[str]
) -> None:
    page = open_page(*command)
    headline = page.locator("#peak").inner_text()
    shown = page.eval_on_selector("#run", "one => one.selectedOptions[0].textContent")
    assert f"; the largest: {shown}, " in headline
    assert page.locator("#run-cards [aria-pressed=true] .name").inner_text() == shown


def test_a_simulated_run_shows_no_times(open_page: OpenPage) -> None:
    page = open_page("estimate", str(MODEL), "--device-memory", "900MiB")
    assert page.locator("#headline").inner_text().endswith("steps, simulated")
    assert page.locator("#steps-table .time").count() > 1
    assert not page.locator("#steps-table .time").first.is_visible()
    assert "after the start" not in page.locator("#chosen-moment").inner_text()
    assert not page.locator("#axis").is_visible()
    assert page.locator("#left-out").is_hidden()


def test_a_recorded_run_shows_its_times(open_page: OpenPage) -> None:
    page = open_page("report", "before.tide")
    assert page.locator("#steps-table .time").first.is_visible()
    assert "after the start" in page.locator("#chosen-moment").inner_text()


def test_the_page_of_a_plan_draws_memory_against_time(
    open_page: OpenPage, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["plan", str(MODEL), "--device", "l4", "--set", "batch=4096", "--set", "width=512"]
    budget = "1850MiB"
    assert main([*command, "--budget", budget, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    page = open_page(*command, "--budget", budget, width=900)
    wait_for_drawing(page)
    marks = page.eval_on_selector_all(
        "#sweep-plot .point", "all => all.map((one) => ({ ...one.dataset }))"
    )
    rows = {row["ac"]: row for row in (*answer["compared"], *answer["front"], answer["chosen"])}
    expected = [
        (str(row["high_bytes"]), "fits" if row["fits"] else "does not fit") for row in rows.values()
    ]
    assert sorted((mark["high"], mark["verdict"]) for mark in marks) == sorted(expected)
    lines = page.eval_on_selector_all(
        "#sweep-plot polyline", "all => all.map((one) => one.getAttribute('points').split(' '))"
    )
    assert sorted(map(len, lines))[-1] == len(answer["front"]) > 1
    assert set(sorted(map(len, lines))[:-1]) <= {1}
    assert "plan" in column(page, "#sweep-table", 1)
    text = page.locator("#sweep-plot").text_content()
    assert "ms a step" in text
    assert f"the budget has {render_bytes(1850 << 20)}" in text
    assert page.evaluate(CONTRAST.read_text())["faint"] == []
