# SPDX-License-Identifier: BSD-3-Clause
"""Hostile names, themes, window sizes, accessibility, and a million events."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from reading import (
    Browser,
    OpenPage,
    composition,
    ledger_peak,
    start_clock,
    view,
    wait_for_drawing,
)
from sealing import edit_trace

HOSTILE = [
    "</script><script>document.title = 'boo'</script>",
    "<img src=x onerror=\"document.title = 'boo'\">",
    "'\"`; document.title = 'boo'; ${document.title = 'boo'} //",
    "\u202e\u05d0\u05d1\u05d2 reversed \u0627\u0644\u0639",
    "deep." * 300 + "end",
    "x" * 20_000,
    "..",
    "__proto__",
    "constructor.prototype",
    "line\nbreak\u2028\0",
]


def test_hostile_names_are_shown_as_text(
    open_page: OpenPage, recorded: Path, tmp_path: Path
) -> None:
    path = tmp_path / "hostile.tide"
    shutil.copy(recorded / "sharded.tide", path)
    with edit_trace(path) as database:
        for table, column in [("modules", "name"), ("ops", "name"), ("units", "name")]:
            rows = database.execute(f"SELECT id FROM {table} ORDER BY id").fetchall()
            for i, (number,) in enumerate(rows):
                name = HOSTILE[i % len(HOSTILE)]
                database.execute(f"UPDATE {table} SET {column} = ? WHERE id = ?", (name, number))
        database.execute("UPDATE tensors SET shape = ?", (HOSTILE[1],))
        database.execute("UPDATE parameters SET name = ?", (HOSTILE[0],))
        database.execute("UPDATE run SET value = ? WHERE key = 'command'", (HOSTILE[0],))
    page = open_page("report", str(path))
    assert composition(page) == ledger_peak(recorded / "sharded.tide")["cpu"]
    box = page.locator("#chart").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 100)
    for by in ("module", "category", "tensor"):
        page.select_option("#group-by", by)
    assert "</script><script>" in page.inner_text("#alive-table")
    page.fill("#search", "<img src=x")
    page.click("#flame .box >> nth=1")
    assert page.title() == f"{path} - tidegauge"
    assert page.locator("script").count() == 1
    assert page.locator("img").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


CONTRAST = Path(__file__).with_name("contrast.js")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_all_text_has_enough_contrast(open_page: OpenPage, theme: str) -> None:
    for command in (["report", "sharded.tide"], ["diff", "before.tide", "after.tide"]):
        page = open_page(*command, theme=theme)
        assert page.get_attribute("html", "data-theme") == theme
        box = page.locator("#chart").bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 100)
        found = page.evaluate(CONTRAST.read_text())
        assert found["count"] > 100
        assert found["faint"] == []


def test_reader_can_choose_the_theme(open_page: OpenPage) -> None:
    page = open_page("report", "before.tide", theme="light")
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    page.select_option("#theme", "dark")
    assert page.evaluate(background) != light
    page.select_option("#theme", "system")
    assert page.evaluate(background) == light
    page.emulate_media(color_scheme="dark")
    page.wait_for_selector("html[data-theme=dark]")
    assert page.evaluate(background) != light


@pytest.mark.parametrize("width", [340, 800, 2400])
def test_the_page_fits_its_window(open_page: OpenPage, width: int) -> None:
    for command in (["report", "sharded.tide"], ["diff", "before.tide", "after.tide"]):
        page = open_page(*command, width=width)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        wide = page.locator("#chart").bounding_box()["width"]
        assert 0.6 * min(width, 1200) < wide <= width
        page.set_viewport_size({"width": width // 2 + 160, "height": 700})
        view(page)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        drawn = page.evaluate("document.getElementById('chart').width / devicePixelRatio")
        assert drawn == pytest.approx(page.locator("#chart").bounding_box()["width"], abs=1)


def test_parts_are_labelled_for_screen_readers(open_page: OpenPage) -> None:
    page = open_page("report", "sharded.tide")
    titles = page.eval_on_selector_all(
        "main section", "all => all.map((one) => one.getAttribute('aria-labelledby'))"
    )
    assert titles == page.eval_on_selector_all("main section h2", "all => all.map((h) => h.id)")
    names = page.eval_on_selector_all(
        "main section:not([hidden])",
        "all => all.map((one) => one.querySelector('h2').innerText)",
    )
    assert names == ["Timeline", "FSDP units", "Chosen moment", "Steps", "Estimated CUDA memory"]
    unlabelled = page.eval_on_selector_all(
        "button, select, input, [role=slider], [role=tree], [role=treeitem], [role=img], canvas",
        """all => all.filter((element) => element.checkVisibility() && !(
             element.getAttribute("aria-hidden") === "true" || element.getAttribute("aria-label") ||
             element.getAttribute("aria-labelledby") || element.labels?.length ||
             element.innerText?.trim())).map((element) => element.outerHTML)""",
    )
    assert unlabelled == []
    slider = page.get_by_role("slider")
    low, now, high = (
        int(slider.get_attribute(f"aria-value{name}")) for name in ("min", "now", "max")
    )
    assert low <= now <= high
    assert page.get_attribute("#chosen-moment", "aria-live") == "polite"
    assert page.inner_text("#chosen-moment") == slider.get_attribute("aria-valuetext")
    assert page.get_by_role("columnheader", name="Bytes").count() == 1


def test_tab_key_follows_the_order_of_the_page(open_page: OpenPage) -> None:
    page = open_page("report", "before.tide")
    seen = []
    name = "document.activeElement.id || document.activeElement.className"
    for _ in range(26):
        page.keyboard.press("Tab")
        is_in_legend = page.evaluate("document.activeElement.closest('#legend') !== null")
        seen.append("legend" if is_in_legend else page.evaluate(name))
    legend = seen.index("legend")
    assert seen[legend : legend + 6] == ["legend"] * 6
    seen = [*dict.fromkeys(seen)]
    assert seen[:10] == [
        "skip",
        "theme",
        "zoom-in",
        "zoom-out",
        "show-all",
        "to-peak",
        "axis",
        "selects",
        "legend",
        "chart",
    ]
    assert seen[10:14] == ["box", "group-by", "search", "only-old"]


def test_run_without_tensors_is_reported(open_page: OpenPage, tmp_path: Path) -> None:
    from tidegauge import MemTracker

    with MemTracker(record=str(tmp_path / "empty.tide")):
        pass
    page = open_page("report", str(tmp_path / "empty.tide"))
    assert page.inner_text("#peak").startswith("Nothing was tracked")
    assert page.is_hidden("#tracked")


def test_million_events_open_in_three_seconds_and_pan_smoothly(
    open_page: OpenPage, browser: Browser, million: Path, tmp_path: Path
) -> None:
    """Measures CPU seconds, which other programs on the machine do not affect."""
    open_seconds = start_clock(browser)
    page = open_page("report", str(million))
    whole = view(page)  # includes its first drawing
    assert open_seconds() < 3
    assert (tmp_path / "page.html").stat().st_size < 25_000_000
    assert composition(page) == ledger_peak(million)["cuda:0"]
    box = page.locator("#chart").bounding_box()
    page.mouse.move(box["x"] + 500, box["y"] + 99)
    for i in range(40):
        pan_seconds = start_clock(browser)
        page.mouse.wheel(*((0, -80) if i < 15 else (60 if i % 2 else -90, 0)))
        wait_for_drawing(page)
        assert pan_seconds() < 0.5
    assert view(page) != whole
