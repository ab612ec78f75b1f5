# SPDX-License-Identifier: BSD-3-Clause
"""The command confirms its own advice when the advice is followed."""

from __future__ import annotations

import json
import shlex

import pytest
from tidegauge.cli.main import main
from tidegauge.estimation import load_contract
from tidegauge.estimation.advice import list_changes
from tidegauge.estimation.plan import Plan
from tidegauge.estimation.sweep import Question

COMMAND = [
    *("estimate", "small_model.py", "--json", "--fsdp", "4", "--set", "batch=4096"),
    *("--assume", "context=1MiB", "--assume", "communication=1MiB"),
]


@pytest.mark.parametrize(("memory", "is_together"), [("190MiB", False), ("130MiB", True)])
def test_following_the_advice_gives_the_promised_bytes(
    model_file: str, memory: str, is_together: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [*COMMAND, "--device-memory", memory]
    assert main(command) == 3
    found = json.loads(capsys.readouterr().out)
    assert found["advice"][0]["estimate"]["verdict"] == "fits"
    assert (found["advice"][0]["change"].count("--") > 1) == is_together
    for advice in found["advice"]:
        main([*command, *shlex.split(advice["change"]), "--no-advice"])
        followed = json.loads(capsys.readouterr().out)
        assert followed["needed_bytes"] == found["needed_bytes"] - advice["saved_bytes"]
        assert followed["verdict"] == advice["estimate"]["verdict"]


@pytest.mark.parametrize(
    ("plan", "change"),
    [
        (Plan(), "--optimizer adafactor"),
        (Plan(fsdp=4), "--optimizer sgd-momentum"),  # Adafactor does not support DTensors
        (Plan(tp=2), "--optimizer sgd-momentum"),
        (Plan(optimizer="sgd"), None),
    ],
    ids=["plain", "fsdp", "tp", "already small"],
)
def test_smaller_optimizer_suits_the_plan(model_file: str, plan: Plan, change: str | None) -> None:
    changes = list_changes(load_contract(model_file), Question(plan))
    options = [each.options for each in changes if each.options.startswith("--optimizer")]
    assert options == ([change] if change else [])
