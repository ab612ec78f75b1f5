# SPDX-License-Identifier: BSD-3-Clause
"""`estimate`, `replay`, `report` and their pages give the same figures for the same run."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pages import unpack
from tidegauge.cli.main import main

Capture = pytest.CaptureFixture[str]
MIB = 1 << 20
TARGET = ["--fsdp", "2", "--set", "batch=64"]


def run_json(capsys: Capture, *command: str) -> dict[str, Any]:
    main([*command, "--json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def page_memory(capsys: Capture, *command: str) -> dict[str, Any]:
    main([*command, "--html", "page.html", "--force"])
    capsys.readouterr()
    memory: dict[str, Any] = unpack("page.html")[0]["runs"][0]["memory"]
    return memory


def sizes(layers: list[dict[str, Any]]) -> dict[str, tuple[int, int, int]]:
    return {
        layer["name"]: (layer["low_bytes"], layer["size_bytes"], layer["high_bytes"])
        for layer in layers
    }


# Kernels of a simulated GPU request their workspaces; otherwise two are assumed.
@pytest.mark.parametrize(
    ("simulated", "device", "workspace_bytes"),
    [
        ("cuda", "h100-80g", None),
        ("cpu", "h100-80g", 64 * MIB),
        ("cpu", "a100-80g", 2 * 8_519_680),
    ],
)
def test_estimate_its_page_and_replay_agree(
    model_file: str, simulated: str, device: str, workspace_bytes: int | None, capsys: Capture
) -> None:
    command = ["estimate", model_file, *TARGET, "--device", device, "--simulate", simulated]
    estimate = run_json(capsys, *command, "--trace", "run.tide")
    replay = run_json(capsys, "replay", "run.tide", "--device", device)
    page = page_memory(capsys, *command)
    expected = None if workspace_bytes is None else (workspace_bytes,) * 3
    assert sizes(estimate["layers"]).get("cuBLAS workspaces") == expected
    assert sizes(page["layers"]) == sizes(estimate["layers"]) == sizes(replay["layers"])
    assert replay["layers"] == estimate["layers"]  # also in the bases of the layers
    for name in ("needed_bytes", "low_bytes", "high_bytes", "margin_bytes"):
        assert replay[name] == estimate[name]
    assert replay["verdict"] == estimate["verdict"] == "fits"
    assert replay["smallest"] == estimate["smallest"]
    assert page["verdict"].startswith("Fits: needs ")


def test_report_and_its_page_agree(model_file: str, capsys: Capture) -> None:
    run_json(capsys, "estimate", model_file, *TARGET, "--trace", "run.tide")
    report = run_json(capsys, "report", "run.tide")
    replay = run_json(capsys, "replay", "run.tide")
    page = page_memory(capsys, "report", "run.tide")
    assert report["device_layers"] == page["layers"] == replay["layers"]
    assert page["verdict"] == ""


def test_text_prints_the_figures_of_json(model_file: str, capsys: Capture) -> None:
    command = ["estimate", model_file, *TARGET, "--device", "h100-80g", "--simulate", "cpu"]
    assert main([*command, "--trace", "run.tide"]) == 0
    estimate = capsys.readouterr().out
    assert main(["replay", "run.tide", "--device", "h100-80g"]) == 0
    replay = capsys.readouterr().out
    shared = [line for line in estimate.splitlines() if line in replay.splitlines()]
    assert any("cuBLAS workspaces" in line and "64.0 MiB" in line for line in shared)
    assert any(line.startswith("Fits: needs ") for line in shared)


def test_named_settings_narrow_the_band(model_file: str, capsys: Capture) -> None:
    command = ["estimate", model_file, "--fsdp", "4", "--set", "batch=4096"]
    both = run_json(capsys, *command)
    plain = run_json(capsys, *command, "--alloc-conf", "")
    expandable = run_json(capsys, *command, "--alloc-conf", "expandable_segments:True")
    assert (both["alloc_conf"], plain["alloc_conf"]) == (None, "")
    assert both["needed_bytes"] == plain["needed_bytes"]
    assert both["low_bytes"] == min(plain["low_bytes"], expandable["low_bytes"])
    assert both["high_bytes"] == max(plain["high_bytes"], expandable["high_bytes"])
    assert plain["high_bytes"] != expandable["high_bytes"]


@pytest.mark.parametrize(("simulated", "is_said"), [("cuda", True), ("cpu", False)])
def test_assumed_workspace_without_effect_is_said(
    model_file: str, simulated: str, is_said: bool, capsys: Capture
) -> None:
    command = ["estimate", model_file, *TARGET, "--simulate", simulated]
    notes = run_json(capsys, *command, "--assume", "cublas=1MiB")["notes"]
    assert any("cuBLAS workspace has no effect" in note for note in notes) == is_said
