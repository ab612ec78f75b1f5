# SPDX-License-Identifier: BSD-3-Clause
"""Names of parameters, buffers and optimizers in a trace."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import torch
from tidegauge import MemTracker, _core
from torch import nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 8)
        self.norm = nn.BatchNorm1d(8)
        self.tied = nn.Linear(4, 8, bias=False)
        self.tied.weight = self.fc.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.fc(x) + self.tied(x))  # type: ignore[no-any-return]


def train(path: Path, steps: int) -> nn.Module:
    model = Net()
    sgd = torch.optim.SGD(model.fc.parameters(), lr=0.1)
    adam = torch.optim.Adam(model.norm.parameters())
    tracker = MemTracker(record=path)
    tracker.track_external(model, sgd, adam)
    with tracker:
        for step in range(steps):
            model(torch.ones(2, 4)).sum().backward()
            sgd.step()
            if step == 0:
                adam.step()
    return model  # must be alive when the file is completed


def test_parameters_and_buffers_have_the_names_of_their_modules(tmp_path: Path) -> None:
    model = train(tmp_path / "run.tide", steps=1)
    reader = _core.Reader(str(tmp_path / "run.tide"))
    rows = reader.storages_alive_at(reader.event_count(), 1000)
    named = {row["parameter"]: row["size_bytes"] for row in rows if row["parameter"]}
    assert named == {
        "Net.fc.weight": 128,  # also Net.tied.weight, which comes later
        "Net.fc.bias": 32,
        "Net.norm.weight": 32,
        "Net.norm.bias": 32,
        "Net.norm.running_mean": 32,
        "Net.norm.running_var": 32,
        "Net.norm.num_batches_tracked": 8,
    }
    assert len(named) == len(list(model.parameters())) + len(list(model.buffers()))
    assert {row["category"] for row in rows if row["parameter"]} == {"Parameter", "Buffer"}


def test_tied_parameter_has_a_row_for_each_name(tmp_path: Path) -> None:
    train(tmp_path / "run.tide", steps=1)
    with sqlite3.connect(tmp_path / "run.tide") as database:
        names = database.execute(
            "SELECT m.name || '.' || p.name FROM parameters p JOIN modules m ON m.id = p.module"
            " JOIN storages s ON s.id = p.storage WHERE s.size_bytes = 128 ORDER BY 1"
        ).fetchall()
    assert names == [("Net.fc.weight",), ("Net.tied.weight",)]


def test_steps_are_counted_per_optimizer_class(tmp_path: Path) -> None:
    train(tmp_path / "run.tide", steps=3)
    steps = _core.Reader(str(tmp_path / "run.tide")).optimizer_steps()
    assert steps == {"torch.optim.sgd.SGD": 3, "torch.optim.adam.Adam": 1}
