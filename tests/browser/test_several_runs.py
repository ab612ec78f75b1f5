# SPDX-License-Identifier: BSD-3-Clause
"""Ranks side by side, and two runs compared."""

from __future__ import annotations

import shutil
from pathlib import Path

from reading import OpenPage, column, composition, ledger_peak
from sealing import edit_trace
from tidegauge._util.formatting import render_bytes, render_change
from tidegauge.report import read_summary
from tidegauge.report.comparison import compare


def test_ranks_are_shown_side_by_side(open_page: OpenPage, recorded: Path) -> None:
    page = open_page("report", "run.rank1.tide", "run.rank0.tide")
    peaks = [sum(ledger_peak(recorded / f"run.rank{rank}.tide")["cpu"].values()) for rank in (0, 1)]
    assert column(page, "#ranks-tables .table:nth-of-type(1)", 3) == [*map(render_bytes, peaks)]
    cards = page.locator("#run-cards .card")
    assert cards.count() == 2
    assert [cards.nth(i).get_attribute("aria-pressed") for i in (0, 1)] == ["true", "false"]
    cards.nth(1).click()
    assert cards.nth(1).get_attribute("aria-pressed") == "true"
    assert "rank 1 of 2" in page.inner_text("#headline")
    assert composition(page) == ledger_peak(recorded / "run.rank1.tide")["cpu"]
    page.select_option("#run", label="rank 0")
    assert composition(page) == ledger_peak(recorded / "run.rank0.tide")["cpu"]
    page.click("#ranks-tables button.link:text-is('1')")
    assert composition(page) == ledger_peak(recorded / "run.rank1.tide")["cpu"]


def test_missing_rank_is_reported(open_page: OpenPage, recorded: Path, tmp_path: Path) -> None:
    for rank in (0, 1):
        path = shutil.copy(recorded / f"run.rank{rank}.tide", tmp_path)
        with edit_trace(path) as database:
            database.execute("UPDATE run SET value = 3 WHERE key = 'world_size'")
    page = open_page("report", *(str(tmp_path / f"run.rank{rank}.tide") for rank in (0, 1)))
    assert "Missing ranks (of 3): 2" in page.inner_text("#ranks")


def test_comparison_equals_that_of_diff(open_page: OpenPage, recorded: Path) -> None:
    page = open_page("diff", "before.tide", "after.tide")
    summaries = [read_summary(recorded / name) for name in ("before.tide", "after.tide")]
    (device,) = compare(*summaries).devices
    total = page.locator("#comparison p.figure")
    assert int(total.get_attribute("data-before")) == device.total.before_bytes
    assert int(total.get_attribute("data-after")) == device.total.after_bytes
    table = "#comparison-tables .table:nth-of-type(1)"
    shown = dict(zip(column(page, table, 1), column(page, table, 4), strict=True))
    assert shown == {c.name: render_change(c.change_bytes) for c in device.categories}
    page.select_option("#run", label="after")
    assert composition(page) == ledger_peak(recorded / "after.tide")["cpu"]
