# SPDX-License-Identifier: BSD-3-Clause
"""`tidegauge.sweep`, and how a sweep and a plan are shown."""

from __future__ import annotations

import pytest
import tidegauge
from tidegauge.allocator import find_device
from tidegauge.estimation import Estimator, Plan, load_contract
from tidegauge.planning.planner import find_plan


def test_a_sweep_equals_its_estimates_and_shows_a_row_for_each(model_file: str) -> None:
    axes = {"batch": [4, 1 << 24], "fsdp": [2, -1]}
    result = tidegauge.sweep(model_file, axes, device="l4", settings={"layers": 2})
    assert len(result) == 4
    assert [point.values["batch"] for point in result] == ["4", "4", "16777216", "16777216"]
    alone = tidegauge.estimate(
        model_file, device="l4", fsdp=2, settings={"layers": 2, "batch": 1 << 24}
    )
    found = result[2].estimate
    assert found is not None
    assert found.needed_bytes == alone.needed_bytes
    assert result[1].estimate is None
    assert "fsdp=-1" in result[1].fault
    assert str(result).startswith("1 of 4 configurations fit; the largest: batch 4, fsdp 2, ")
    html = result._repr_html_()
    assert html.count("<tr>") == 5
    assert html.count("does not fit") == 1
    assert "not possible: " in html


def test_a_sweep_of_nothing_that_exists_is_an_error(model_file: str) -> None:
    with pytest.raises(ValueError, match="bacth"):
        tidegauge.sweep(model_file, {"bacth": [1, 2]})
    with pytest.raises(TypeError, match="divice"):
        tidegauge.sweep(model_file, {"batch": [1]}, divice="l4")


def test_a_plan_is_shown_in_one_line_and_in_notebooks(model_file: str) -> None:
    device = find_device("l4")
    with Estimator(load_contract(model_file)) as estimator:
        found = find_plan(estimator, Plan(), device)
    assert str(found).startswith("no checkpointing: fits ")
    assert str(found).endswith(" to spare, without checkpointing")
    html = found._repr_html_()
    assert html.count("<tr>") == 2 + len(found.rows)
    assert "selective" in html
    assert "\n" not in str(found)
