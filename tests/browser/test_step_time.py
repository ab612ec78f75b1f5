# SPDX-License-Identifier: BSD-3-Clause
"""The modelled time of a step on the page of an estimate."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from reading import OpenPage
from tidegauge.cli.main import main

MODEL = Path(__file__).parents[1] / "python" / "support" / "small_model.py"
CONTRAST = Path(__file__).with_name("contrast.js")
PARTS = ("forward", "backward", "recompute", "optimizer", "exposed", "idle")


def test_page_shows_the_modelled_time_and_where_it_goes(
    open_page: OpenPage, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["estimate", str(MODEL), "--device", "l4", "--set", "batch=4096", "--ac", "full"]
    assert main([*command, "--json"]) == 0
    time = json.loads(capsys.readouterr().out)["time"]
    page = open_page(*command)
    assert page.locator("#step-time").is_visible()
    answer = page.locator("#step-time-answer").text_content() or ""
    assert f"{time['tokens_per_second']:,.0f} tokens/s per device" in answer
    found = page.eval_on_selector_all(
        "#step-time-parts [data-ms]", "all => all.map((one) => Number(one.dataset.ms))"
    )
    expected = [time[f"{part}_ms"] for part in PARTS]
    assert found == pytest.approx([ms for ms in expected if ms >= 0.0005 * time["ms"]])
    assert sum(found) == pytest.approx(time["ms"], rel=0.01)
    assert "Not calibrated" in (page.locator("#step-time-basis").text_content() or "")
    assert page.evaluate(CONTRAST.read_text())["faint"] == []


def test_page_without_a_modelled_time_has_no_section(open_page: OpenPage) -> None:
    page = open_page("estimate", str(MODEL))
    assert page.locator("#step-time").is_hidden()
