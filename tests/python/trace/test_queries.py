# SPDX-License-Identifier: BSD-3-Clause
"""Runs the queries of docs/trace-format.md."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import torch
from tidegauge import MemTracker, Recorder

PAGE = Path(__file__).parents[3] / "docs" / "trace-format.md"
QUERIES = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[list[Any]]:
    """The result of each query for two steps of Linear(4, 8) with SGD with momentum."""
    path = tmp_path_factory.mktemp("trace") / "run.tide"
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    recorder = Recorder(path)
    tracker = MemTracker(record=recorder)
    tracker.track_external(model, optimizer)
    with tracker:
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
    peak = tracker.get_tracker_snapshot("peak")[torch.device("cpu")]
    recorder.close()
    database = sqlite3.connect(path)
    assert database.execute("SELECT count(*) FROM optimizer_steps").fetchone() == (2,)
    rows = [database.execute(query).fetchall() for query in QUERIES]
    assert sum(row[2] for row in rows[0]) == peak["Total"]
    database.close()
    return rows


def test_document_has_five_queries() -> None:
    assert len(QUERIES) == 5


def test_peak_has_the_parameters(answers: list[list[Any]]) -> None:
    assert ("cpu", "Parameter", (4 * 8 + 8) * 4) in answers[0]


def test_largest_tensors_at_the_peak_have_the_size_of_the_weight(
    answers: list[list[Any]],
) -> None:
    assert answers[1][0][:4] == (128, "Parameter", "[8, 4]", "float32")


def test_relu_output_is_saved_for_backward(answers: list[list[Any]]) -> None:
    by_module = {row[0]: row for row in answers[2]}
    assert by_module["Sequential.1"][3] == 2 * (2 * 8) * 4


def test_momentum_is_never_freed(answers: list[list[Any]]) -> None:
    assert [row[3] for row in answers[3] if row[1] == "Optstate"] == [160]


def test_query_shows_that_the_run_ended(answers: list[list[Any]]) -> None:
    ((events, lost, ended),) = answers[4]
    assert events > 50
    assert lost == 0
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", ended)
