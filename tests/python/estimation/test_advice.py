# SPDX-License-Identifier: BSD-3-Clause
"""The command confirms its own advice when the advice is followed."""

from __future__ import annotations

import json
import shlex
from typing import Any

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


def estimate_json(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    main(["estimate", "small_model.py", "--json", *words])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


ONLY_TENSORS = ("--assume", "context=1MiB", "--assume", "communication=1MiB")


@pytest.mark.parametrize("devices", [(), ("--dp", "2"), ("--hsdp", "2x2")])
def test_advice_has_the_fewest_devices_that_fit(
    model_file: str, devices: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    plan = ["--set", "layers=24", "--set", "width=2048", *ONLY_TENSORS]
    option, copies = ("--hsdp", "2x") if "--hsdp" in devices else ("--fsdp", "")

    def find_verdict(count: int) -> str:
        words = [*plan, option, f"{copies}{count}", "--device-memory", memory, "--no-advice"]
        return str(estimate_json(capsys, *words)["verdict"])

    needs = estimate_json(capsys, *plan, option, f"{copies}5", "--no-advice")["high_bytes"]
    memory = f"{needs + 1}B"
    found = estimate_json(capsys, *plan, *devices, "--device-memory", memory)
    advised = [row for row in found["advice"] if row["change"].startswith(option)]
    assert [row["estimate"]["verdict"] for row in advised] == ["fits"]
    count = int(advised[0]["change"].removeprefix(f"{option} {copies}"))
    assert count <= 5
    assert [find_verdict(count) == "fits", find_verdict(count - 1) == "fits"] == [True, False]


def test_advice_says_that_nothing_fits(model_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["estimate", "small_model.py", *ONLY_TENSORS, "--device-memory", "23MiB"]
    assert main([*command, "--set", "batch=4096"]) == 3
    text = " ".join(capsys.readouterr().out.split())
    assert "does not fit" in text
    assert "nor do more devices: use a device with more memory, or a smaller model." in text


def test_a_single_tensor_that_exceeds_the_device_gets_only_advice_that_makes_it_smaller(
    model_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    batch = 1 << 20
    words = ["--set", f"batch={batch}", *ONLY_TENSORS, "--device-memory", "100MiB"]
    found = estimate_json(capsys, *words)
    changes = [row["change"] for row in found["advice"]]
    assert changes
    assert all(change.startswith(("--set batch", "--set seq", "--dtype")) for change in changes)
    main(["estimate", "small_model.py", *words])
    assert "One tensor alone exceeds the device: float32" in capsys.readouterr().out


LARGE = ("--set", "layers=24", "--set", "width=4096", "--set", "batch=3000")


def test_plan_command_fits(model_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--fsdp", "2", "--device", "l4", *LARGE]
    found = estimate_json(capsys, *words)
    assert any("--ac" in row["change"] for row in found["advice"])
    assert "--ac" not in found["plan_command"]
    command = shlex.split(found["plan_command"])
    assert command[:3] == ["tidegauge", "plan", "small_model.py"]
    assert main(command[1:]) == 0
    assert "Fits 22" in capsys.readouterr().out
    assert estimate_json(capsys, "--device", "l4")["plan_command"] == ""  # it fits
