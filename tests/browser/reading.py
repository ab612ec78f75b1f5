# SPDX-License-Identifier: BSD-3-Clause
"""Reads the contents of a page as values."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tidegauge import _core

Page = Any  # playwright.sync_api.Page
Browser = Any  # playwright.sync_api.Browser
OpenPage = Callable[..., Page]  # conftest.py


def composition(page: Page) -> dict[str, int]:
    """Bytes by category at the chosen moment."""
    return {
        row.get_attribute("data-category"): int(row.get_attribute("data-bytes"))
        for row in page.query_selector_all("#composition li")
    }


def chosen_event(page: Page) -> int:
    text = page.get_attribute("#chart", "aria-valuetext")
    return int(re.search(r"event ([\d,]+)$", text)[1].replace(",", ""))


def wait_for_drawing(page: Page) -> None:
    frame = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
    page.evaluate(f"() => {frame}")


def start_clock(browser: Browser) -> Callable[[], float]:
    """Returns a function that gives the CPU seconds of the browser's pages since this call."""

    def read() -> dict[int, float]:
        processes = session.send("SystemInfo.getProcessInfo")["processInfo"]
        return {each["id"]: each["cpuTime"] for each in processes if each["type"] == "renderer"}

    session = browser.new_browser_cdp_session()
    before = read()
    return lambda: sum(taken - before.get(number, 0) for number, taken in read().items())


def view(page: Page) -> tuple[float, float]:
    """The part of the axis that the chart shows, after it was drawn."""
    wait_for_drawing(page)
    data = page.evaluate("() => ({ ...document.getElementById('chart').dataset })")
    return float(data["from"]), float(data["to"])


def column(page: Page, table: str, number: int) -> list[str]:
    return page.eval_on_selector_all(
        f"{table} tbody tr > :nth-child({number})",
        "cells => cells.map((cell) => cell.innerText.trim())",
    )


def ledger_peak(path: Path) -> dict[str, dict[str, int]]:
    return {
        device: split for device, _, _, _, split in _core.Reader(str(path)).replay().fine_peak()
    }


def chart_box(page: Page) -> dict[str, float]:
    return page.locator("#chart").bounding_box()


def drawn_colours(page: Page, canvas: str) -> set[str]:
    """`rgb(1, 2, 3)` of all opaque pixels, drawn by event: on a time axis, the speed of the machine
    decides which spans are wide enough to be visible."""
    page.select_option("#axis", "sequence")
    wait_for_drawing(page)
    return set(
        page.eval_on_selector(
            canvas,
            """(canvas) => {
              const context = canvas.getContext("2d");
              const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
              const seen = new Set();
              for (let i = 0; i < data.length; i += 4) {
                if (data[i + 3] === 255) seen.add(`rgb(${data.slice(i, i + 3).join(", ")})`);
              }
              return [...seen];
            }""",
        )
    )
