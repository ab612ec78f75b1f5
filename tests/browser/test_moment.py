# SPDX-License-Identifier: BSD-3-Clause
"""Live storages at the chosen moment, the flame graph, units, and device memory."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import small_model
from reading import OpenPage, column, composition, drawn_colours
from tidegauge._util.formatting import parse_bytes, render_bytes
from tidegauge.allocator import replay_trace
from tidegauge.report import read_summary

REPO = Path(__file__).parents[2]


def test_table_at_the_peak_equals_the_report(open_page: OpenPage, recorded: Path) -> None:
    page = open_page("report", "before.tide")
    (peak,) = read_summary(recorded / "before.tide").peaks
    page.select_option("#group-by", "category")
    assert dict(
        zip(column(page, "#alive-table", 3), column(page, "#alive-table", 1), strict=True)
    ) == {name: render_bytes(size) for name, size in peak.categories.items()}
    page.select_option("#group-by", "module")
    own = {module.name: module.own_bytes for module in peak.modules if module.own_bytes}
    assert dict(
        zip(column(page, "#alive-table", 3), column(page, "#alive-table", 1), strict=True)
    ) == {name: render_bytes(size) for name, size in own.items()}
    assert f", {render_bytes(peak.total_bytes)}" in page.inner_text("#alive-count")


def test_search_keeps_rows_that_contain_its_words(open_page: OpenPage) -> None:
    page = open_page("report", "before.tide")
    page.fill("#search", "blocks.1 GRADIENT")
    assert set(column(page, "#alive-table", 3)) == {"Gradient"}
    assert all(module.startswith("Net.blocks.1") for module in column(page, "#alive-table", 5))
    assert " of 822 KiB" in page.inner_text("#alive-count")
    page.fill("#search", "nothing has this")
    assert column(page, "#alive-table", 1) == []
    assert page.inner_text("#alive-count").startswith("0 groups, 0 storages, 0 B of ")
    page.fill("#search", "weight")
    assert "Net.head.weight" in column(page, "#alive-table", 7)


def test_headers_sort_up_and_down(open_page: OpenPage) -> None:
    page = open_page("report", "before.tide")
    page.click("#alive-table th:nth-child(2) button")
    header = "#alive-table th:nth-child(1)"

    def read_sizes() -> list[int]:
        return [parse_bytes(text) or 0 for text in column(page, "#alive-table", 1)]

    page.click(f"{header} button")
    assert page.get_attribute(header, "aria-sort") == "descending"
    sizes = read_sizes()
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) > 1
    page.focus(f"{header} button")
    page.keyboard.press("Enter")
    assert page.get_attribute(header, "aria-sort") == "ascending"
    assert read_sizes() == sorted(sizes)


def test_modules_sort_in_the_order_of_the_tree(open_page: OpenPage) -> None:
    page = open_page("report", "before.tide")
    page.click("#alive-table th:nth-child(5) button")
    modules = column(page, "#alive-table", 5)
    assert modules[0] == "(no module)"
    assert (
        modules.index("Net.blocks.0.0")
        < modules.index("Net.blocks.1.2")
        < modules.index("Net.head")
    )


def test_long_tables_show_the_rest_on_demand(open_page: OpenPage, million: Path) -> None:
    page = open_page("report", str(million))
    assert len(column(page, "#alive-table", 1)) == 100
    page.click("#alive-table .more")
    assert len(column(page, "#alive-table", 1)) > 100


def test_flame_graph_shows_the_modules_of_the_moment(open_page: OpenPage, recorded: Path) -> None:
    page = open_page("report", "before.tide")
    (peak,) = read_summary(recorded / "before.tide").peaks
    labels = page.eval_on_selector_all(
        "#flame [data-path]", "boxes => boxes.map((box) => box.getAttribute('aria-label'))"
    )
    assert labels[0].startswith(f"all modules: {render_bytes(peak.total_bytes)}, 100")
    shown = {label.rpartition(": ")[0]: label.rpartition(": ")[2] for label in labels}
    for module in peak.modules:
        if module.tree_bytes > 0.01 * peak.total_bytes:
            assert shown[module.name].startswith(f"{render_bytes(module.tree_bytes)}, ")
    page.click("#flame [data-path='Net.blocks.1']")
    assert page.inner_text("#flame-path") == "Net.blocks.1"
    first = page.locator("#flame .box").first
    assert first.get_attribute("data-path") == "Net.blocks.1"
    assert first.bounding_box()["width"] == pytest.approx(
        page.locator("#flame").bounding_box()["width"], abs=1
    )
    page.click("#flame-up")
    assert page.inner_text("#flame-path") == "all modules"


def test_flame_graph_follows_the_moment_and_the_keyboard(open_page: OpenPage) -> None:
    page = open_page("report", "before.tide")
    page.focus("#flame .box")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.dataset.path") == "Net"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    assert page.inner_text("#flame-path") == "Net.blocks"
    page.focus("#chart")
    page.keyboard.press("Home")
    assert sum(composition(page).values()) < 300_000
    root = page.get_attribute("#flame .box", "aria-label")
    total = render_bytes(sum(composition(page).values()))
    assert total in page.inner_text("#chosen-moment")
    assert "822 KiB" not in root
    page.focus("#flame .box")
    page.keyboard.press("Escape")
    assert page.inner_text("#flame-path") == "all modules"


def test_units_have_lanes_and_text(open_page: OpenPage, recorded: Path) -> None:
    page = open_page("report", "sharded.tide")
    (peak,) = read_summary(recorded / "sharded.tide").peaks
    said = page.eval_on_selector_all("#units-text li", "rows => rows.map((row) => row.textContent)")
    assert said == [
        f"{unit.name}: gathered {unit.gather_count} times, reduced {unit.reduce_count} times"
        for unit in sorted(peak.units, key=lambda unit: unit.name)
    ]
    assert column(page, "#units-table", 1) == [unit.name for unit in peak.units]
    whole = ("Unsharded Param", "Unsharded Grad")
    assert column(page, "#units-table", 4) == [
        render_bytes(sum(unit.categories.get(name, 0) for name in whole)) for unit in peak.units
    ]
    keys = page.eval_on_selector_all(
        "#units .key", "keys => keys.map((key) => getComputedStyle(key).backgroundColor)"
    )
    sharded, gathering, whole, _, reduced = keys
    assert {sharded, gathering, whole, reduced} <= drawn_colours(page, "#lanes")
    assert open_page("report", "before.tide").is_hidden("#units")


def test_many_lanes_are_folded_until_all_are_asked_for(open_page: OpenPage) -> None:
    sizes = ("--set", "layers=12", "--simulate", "cpu")
    page = open_page("estimate", small_model.__file__, "--fsdp", "4", *sizes)
    folded = page.locator("#lanes").bounding_box()["height"]
    assert page.inner_text("#all-lanes") == "Show all 13 units"
    page.click("#all-lanes")
    assert page.locator("#lanes").bounding_box()["height"] - folded == (13 - 8) * 22
    assert page.inner_text("#all-lanes") == "Show 8 units"


def test_device_memory_equals_the_report(open_page: OpenPage, recorded: Path) -> None:
    page = open_page("report", "sharded.tide")
    memory = replay_trace(recorded / "sharded.tide", alloc_confs=("",), catalogue=())
    shown = page.eval_on_selector_all(
        "#layers td[data-bytes]", "cells => cells.map((c) => c.dataset.bytes)"
    )
    assert [int(size) for size in shown] == [layer.size_bytes for layer in memory.layers]
    figures = memory.figures
    free = render_bytes(figures.unused_at_peak_bytes)
    reserved = render_bytes(figures.peak_reserved_bytes)
    assert f"{reserved} reserved, of which {free}" in page.inner_text("#map-text")
    assert page.get_attribute("#map", "aria-label").endswith(page.inner_text("#map-text"))
    sizes = page.eval_on_selector_all(
        "#segments-table tbody tr", "rows => rows.map((row) => row.cells[3].innerText)"
    )
    assert sizes == ["2.00 MiB"] * 3


def test_clicked_row_is_pinned_and_followed(open_page: OpenPage) -> None:
    page = open_page("report", "before.tide")
    assert page.is_hidden("#pinned")
    page.fill("#search", "gradient blocks")
    page.click("#alive-table tbody tr:nth-child(1)")
    label = page.inner_text("#pinned-label")
    assert "Net.blocks" in label
    assert "at this moment, born in step" in page.inner_text("#pinned-bytes")
    assert page.is_visible("#pinned-hint")  # the run recorded no lines
    page.focus("#chart")
    page.keyboard.press("Home")  # nothing but the first storage exists
    assert page.inner_text("#pinned-label") == label
    assert page.inner_text("#pinned-bytes") == "nothing of it is alive at this moment"
    page.click("#unpin")
    assert page.is_hidden("#pinned")


@pytest.fixture(scope="module")
def with_lines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run as `tidegauge run` records it, with lines of the program."""
    folder = tmp_path_factory.mktemp("lines")
    shutil.copy(REPO / "examples" / "python" / "leak.py", folder)
    command = [sys.executable, "-m", "tidegauge", "run", "-q", "leak.py"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "leak.tide"


def test_clicked_row_shows_its_lines(open_page: OpenPage, with_lines: Path) -> None:
    page = open_page("report", str(with_lines))
    page.fill("#search", "addmm")
    page.click("#alive-table tbody tr:nth-child(1)")
    assert page.is_hidden("#pinned-hint")
    frames = page.locator("#pinned-stacks .frames").first.inner_text().splitlines()
    assert frames
    assert all(frame.startswith("leak.py:") for frame in frames)


def test_clicked_block_shows_its_lines_and_bytes(open_page: OpenPage, with_lines: Path) -> None:
    page = open_page("report", str(with_lines))
    page.locator("#flame [data-path]").first.click()  # everything
    (peak,) = read_summary(with_lines).peaks
    assert page.inner_text("#pinned-label") == "all modules"
    assert page.inner_text("#pinned-bytes").startswith(f"{render_bytes(peak.total_bytes)} in ")
    stacks = page.locator("#pinned-stacks > li").all_inner_texts()
    assert 1 < len(stacks) <= 6  # the five largest, and how many others there are
    assert all("leak.py:" in stack for stack in stacks[:5])
    largest = max(peak.lines, key=lambda line: line.size_bytes)
    page.select_option("#group-by", "line")
    assert largest.line in column(page, "#alive-table", 3)


def test_storages_of_earlier_steps_can_be_shown_alone(open_page: OpenPage) -> None:
    page = open_page("report", "before.tide")
    page.select_option("#group-by", "category")
    every = set(column(page, "#alive-table", 3))
    page.check("#only-old")
    old = set(column(page, "#alive-table", 3))
    assert "Optstate" in old
    assert old < every  # parameters are older than the first step, activations younger


def test_legend_shows_one_category_alone(open_page: OpenPage) -> None:
    page = open_page("report", "before.tide")
    button = page.locator("#legend button", has_text="Gradient")
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    assert page.locator("#legend button.faded").count() > 2
    button.click()
    assert page.locator("#legend button.faded").count() == 0


def test_shift_and_drag_sums_up_a_range(open_page: OpenPage) -> None:
    page = open_page("report", "before.tide")
    box = page.locator("#chart").bounding_box()
    page.keyboard.down("Shift")
    page.mouse.move(box["x"] + 200, box["y"] + 150)
    page.mouse.down()
    page.mouse.move(box["x"] + 800, box["y"] + 150, steps=4)
    page.mouse.up()
    page.keyboard.up("Shift")
    text = page.inner_text("#range-text")
    assert text.startswith("Selected ")
    assert " allocated in " in text
    page.click("#range-end")
    assert page.is_hidden("#range")
