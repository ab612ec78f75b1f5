# SPDX-License-Identifier: BSD-3-Clause
"""`tidegauge replay run.tide`: layers from tensors to the device, other settings, devices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tidegauge import MemTracker
from tidegauge.allocator import (
    Assumptions,
    DeviceMemory,
    DeviceModel,
    device_models,
    find_device,
    replay_trace,
)
from tidegauge.cli.main import main
from tidegauge.report import read_summary

Golden = Callable[[str, str], None]
Capture = pytest.CaptureFixture[str]
MIB = 1 << 20


@pytest.fixture
def two_tensors(tmp_path: Path) -> Path:
    """1,000 B and 12 MiB are live at once, after 12 MiB were freed."""
    path = tmp_path / "two.tide"
    with MemTracker(record=path):
        torch.empty(12 * MIB, dtype=torch.uint8)
        small = torch.empty(1000, dtype=torch.uint8)
        large = torch.empty(12 * MIB, dtype=torch.uint8)
        del small, large
    return path


def test_layers_equal_those_computed_by_hand(two_tensors: Path) -> None:
    memory = replay_trace(two_tensors, assumptions=Assumptions(context_bytes=MIB))
    layers = {layer.name: layer.size_bytes for layer in memory.layers}
    assert layers == {
        "tensors": 1000 + 12 * MIB,
        "rounding and slack": 24,  # rounded to 512 B
        "active": 1024 + 12 * MIB,
        "unused in segments": 2 * MIB - 1024,  # small requests come from segments of 2 MiB
        "reserved": 14 * MIB,  # the first 12 MiB are reused
        "cuBLAS workspaces": 2 * 8_519_680,
        "CUDA context": MIB,
        "communication": 0,
        "on the device": 15 * MIB + 2 * 8_519_680,
    }
    assert {layer.basis for layer in memory.layers} == {"measured", "modelled", "assumed", None}
    assert memory.requests == 6


def test_tensors_at_the_peak_equal_the_peak_of_the_tracker(traces: Path) -> None:
    tracked_bytes = read_summary("before.tide").peaks[0].total_bytes
    memory = replay_trace("before.tide")
    assert memory.layers[0].size_bytes == tracked_bytes  # at the moment with the most active bytes
    assert memory.figures.peak_active_bytes >= tracked_bytes


def test_several_ranks_get_an_allowance_for_communication(traces: Path) -> None:
    def communication(path: str, assumptions: Assumptions | None = None) -> int:
        layers = replay_trace(path, assumptions=assumptions).layers
        return next(layer.size_bytes for layer in layers if layer.name == "communication")

    assert communication("before.tide") == 0
    assert communication("run.rank0.tide") == 512 * MIB
    assert communication("run.rank0.tide", Assumptions(communication_bytes=7)) == 7


def test_one_byte_less_does_not_fit(two_tensors: Path) -> None:
    nothing = Assumptions(
        context_bytes=0, cublas_workspaces=0, cublas_workspace_bytes=0, communication_bytes=0
    )
    exact = replace(find_device("t4"), memory_bytes=14 * MIB)

    def replay(device: DeviceModel | None, catalogue: list[DeviceModel]) -> DeviceMemory:
        return replay_trace(
            two_tensors,
            alloc_confs=("",),
            device=device,
            assumptions=nothing,
            catalogue=catalogue,
        )

    fits = replay(exact, [])
    assert (fits.fits, fits.failed_requests, fits.verdict.name) == (True, 0, "fits")
    less = replace(exact, memory_bytes=14 * MIB - 1)
    fails = replay(less, [])
    assert (fails.fits, fails.failed_requests, fails.verdict.name) == (False, 1, "does not fit")
    assert replay(None, [less, exact]).smallest == exact


def test_without_settings_the_band_covers_both_modes(two_tensors: Path) -> None:
    """Expandable segments serve 12 MiB from a page of 20 MiB, and small ones from 2 MiB."""
    memory = replay_trace(two_tensors, assumptions=Assumptions(context_bytes=0))
    reserved = next(layer for layer in memory.layers if layer.name == "reserved")
    assert (reserved.size_bytes, reserved.low_bytes) == (14 * MIB, 14 * MIB)
    assert reserved.high_bytes == 22 * MIB
    assert memory.verdict.high_bytes - memory.verdict.low_bytes == 8 * MIB
    assert memory.settings[0].alloc_conf == "expandable_segments:True"


def test_sizes_beyond_64_bits_are_reported(two_tensors: Path) -> None:
    with pytest.raises(ValueError, match="exceeds 64 bits"):
        replay_trace(two_tensors, assumptions=Assumptions(context_bytes=1 << 70))
    with pytest.raises(ValueError, match=r"context_bytes = -1 \(expected 0 to"):
        replay_trace(two_tensors, assumptions=Assumptions(context_bytes=-1))


def test_catalogue_is_sorted_and_complete() -> None:
    models = device_models()
    assert [m.memory_bytes for m in models] == sorted(m.memory_bytes for m in models)
    assert len({model.key for model in models}) == len(models) >= 10
    assert find_device("A100-40G").key == "a100-40g"
    for model in models:
        assert model.name
        assert 7 <= model.compute <= 12


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("replay_trace", ["--device", "a100-40g"]),
        (
            "replay_trace_settings",
            ["--alloc-conf", "", "--alloc-conf", "expandable_segments:True,max_split_size_mb:64"],
        ),
        ("replay_trace_json", ["--json", "--assume", "context=1GiB", "--assume", "cublas=0"]),
    ],
)
def test_output_equals_the_golden_file(
    traces: Path, name: str, arguments: list[str], golden: Golden, capsys: Capture
) -> None:
    assert main(["replay", "before.tide", *arguments]) == 0
    output = capsys.readouterr()
    golden(f"{name}.txt", output.out)
    assert output.err == ""
    if "--json" not in arguments:
        assert max(map(len, output.out.splitlines())) <= 80


def test_too_close_to_call_exits_with_0(traces: Path, capsys: Capture) -> None:
    assert main(["replay", "before.tide", "--device-memory", "500MiB"]) == 0
    assert capsys.readouterr().out.count("Too close to call: needs 518 MiB (318 MiB to 818") == 1


def test_run_that_does_not_fit_exits_with_3(traces: Path, golden: Golden, capsys: Capture) -> None:
    assert main(["replay", "before.tide", "--device-memory", "300MiB"]) == 3
    golden("replay_trace_too_small.txt", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--device", "a100"], 2, "did you mean a100-40g or a100-80g?"),
        (["--device", "moon"], 2, "expected t4"),
        (["--device", "t4", "--device-memory", "1GiB"], 2, "mutually exclusive"),
        (["--assume", "weather=1GiB"], 2, "invalid --assume 'weather=1GiB'"),
        (["--assume", "context=much"], 2, "invalid size 'much'"),
        (["--traced-device", "cuda:1"], 2, "no memory on device 'cuda:1' (it used: cpu)"),
        (["--alloc-conf", "nonsense:1"], 2, "nonsense"),
        (["--recorded-conf", ""], 2, "requires a snapshot"),
        (["--deferred", "low"], 2, "requires a snapshot"),
    ],
)
def test_bad_arguments_get_one_line(
    traces: Path, arguments: list[str], code: int, message: str, capsys: Capture
) -> None:
    assert main(["replay", "before.tide", *arguments]) == code
    output = capsys.readouterr()
    assert output.out == ""
    assert message in output.err
    assert len(output.err.splitlines()) == 1


def test_damaged_trace_gets_one_line(traces: Path, capsys: Capture) -> None:
    path = traces / "before.tide"
    path.write_bytes(path.read_bytes()[:3000])
    assert main(["replay", "before.tide"]) == 1
    error = capsys.readouterr().err
    assert "before.tide" in error
    assert len(error.splitlines()) == 1
