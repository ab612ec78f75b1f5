# SPDX-License-Identifier: BSD-3-Clause
"""`tidegauge calibrate`: one measured step or a file of timings fixes the constants of a device."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
from tidegauge.cli.main import main
from tidegauge.estimation import estimate
from tidegauge.estimation.calibration import parse_measured

Capture = pytest.CaptureFixture[str]
LARGE = ["--set", "width=2048", "--set", "batch=64"]
EXAMPLE = Path(__file__).parents[3] / "examples" / "python" / "time_ops.py"


@pytest.fixture(autouse=True)
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config" / "tidegauge" / "calibrations.json"


def time_ms(model_file: str, **options: Any) -> float:
    found = estimate(model_file, device="l4", settings={"width": 2048, "batch": 64, **options}).time
    assert found is not None
    return found.ms


def calibrate(model_file: str, measured: str) -> int:
    return main(["calibrate", model_file, "--device", "l4", *LARGE, "--measured", measured])


def test_calibrated_step_takes_the_measured_time(model_file: str, capsys: Capture) -> None:
    before, other_before = time_ms(model_file), time_ms(model_file, layers=6)
    assert calibrate(model_file, f"{before * 1.3:.6f}ms") == 0
    assert "Times of l4 are now calibrated by small_model.py" in capsys.readouterr().out
    assert time_ms(model_file) == pytest.approx(before * 1.3, rel=1e-5)
    # Other steps follow; what the host and the least time of a kernel decide does not.
    assert time_ms(model_file, layers=6) == pytest.approx(other_before * 1.3, rel=0.05)
    assert main(["calibrate", "--forget", "--device", "l4"]) == 0
    assert time_ms(model_file) == before


def test_tokens_per_second_are_a_time(model_file: str) -> None:
    wanted = time_ms(model_file) * 1.2
    assert calibrate(model_file, f"{64 * 16 / wanted * 1e3:.6f}tok/s") == 0
    assert time_ms(model_file) == pytest.approx(wanted, rel=1e-4)


def test_every_output_names_the_calibration(model_file: str, capsys: Capture) -> None:
    measured = f"{time_ms(model_file) * 1.1:.3f}ms"
    assert calibrate(model_file, measured) == 0
    capsys.readouterr()
    named = f"alibrated by small_model.py, no checkpointing, AdamW: {measured}"
    for command in ("estimate", "plan"):
        assert main([command, model_file, "--device", "l4", *LARGE]) == 0
        assert named.partition(", AdamW")[0] in " ".join(capsys.readouterr().out.split())
        assert main([command, model_file, "--device", "l4", *LARGE, "--json"]) == 0
        answer = json.loads(capsys.readouterr().out)
        answer = answer.get("time", answer)
        assert answer["is_calibrated"]
    found = estimate(model_file, device="l4")
    assert "(calibrated)" in str(found)
    assert found.time is not None
    assert found.time.high_ms == pytest.approx(1.1 * found.time.ms)
    other = estimate(model_file, device="h100-80g").time
    assert other is not None
    assert not other.is_calibrated


@pytest.mark.parametrize(
    ("measured", "message"),
    [
        ("fast", "invalid measured step 'fast'"),
        ("0ms", "invalid measured step '0ms'"),
        ("12", "invalid measured step '12'"),
        ("0.001us", "the device cannot take less than"),
        ("9999999s", "check the device, the plan and the batch"),
    ],
)
def test_bad_measurement_is_one_line(
    model_file: str, measured: str, message: str, capsys: Capture, saved: Path
) -> None:
    assert calibrate(model_file, f"{measured}") == 2
    assert message in capsys.readouterr().err
    assert not saved.exists()


def test_units_of_a_measured_step() -> None:
    assert parse_measured("1.5 s").step_ns == 1.5e9
    assert parse_measured("850ms").step_ns == 850e6
    assert parse_measured("5,762tok/s").tokens_per_second == 5762
    assert parse_measured("2 s").find_ns(None) == 2e9
    assert parse_measured("100tok/s").find_ns(50.0) == 0.5e9
    with pytest.raises(ValueError, match="does not say what a token is"):
        parse_measured("100tok/s").find_ns(None)


def timings(**changes: Any) -> dict[str, Any]:
    ops = [
        {"kind": "matmul", "dtype": "bfloat16", "flops": 121e12 * 0.5, "bytes": 0, "ns": 1e9},
        {"kind": "matmul", "dtype": "float32", "flops": 30.3e12 * 0.7, "bytes": 0, "ns": 1e9},
        {"kind": "matmul", "dtype": "float32", "flops": 30.3e12 * 0.6, "bytes": 0, "ns": 1e9},
        {"kind": "memory", "dtype": "float32", "flops": 0, "bytes": 300e9 * 0.9, "ns": 1e9},
        {"kind": "launch", "dtype": "float32", "flops": 0, "bytes": 0, "ns": 3500},
    ]
    return {"format": "tidegauge op timings 1", "device": "An L4", "ops": ops, **changes}


def test_timings_set_the_median_of_each_kind(saved: Path, capsys: Capture) -> None:
    Path(saved.parents[2], "t.json").write_text(json.dumps(timings()))
    assert main(["calibrate", "--timings", str(saved.parents[2] / "t.json"), "--device", "l4"]) == 0
    constants = json.loads(saved.read_text())["devices"]["l4"]["constants"]
    assert constants == {
        "matmul_share": pytest.approx(0.6),
        "memory_share": pytest.approx(0.9),
        "kernel_ns": 3500,
    }
    assert "calibrated by op timings of An L4" in capsys.readouterr().out


def bad_op(**changes: Any) -> list[dict[str, Any]]:
    return [{"kind": "matmul", "dtype": "float32", "flops": 1e12, "bytes": 0, "ns": 1e9, **changes}]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "holds no op timings"),
        ("[" * 100_000, "holds no op timings"),
        ("\ud800", "holds no op timings"),
        ("[]", "holds no op timings"),
        (json.dumps(timings(format="2")), "holds no op timings"),
        (json.dumps(timings(ops=[])), "has no list of ops"),
        (json.dumps(timings(ops=[3])), "op 0: unknown kind None"),
        (json.dumps(timings(ops=bad_op(kind="dance"))), "op 0: unknown kind 'dance'"),
        (json.dumps(timings(ops=bad_op(kind=["x"]))), "op 0: unknown kind"),
        (json.dumps(timings(ops=bad_op(ns=0))), "op 0: ns is 0"),
        (json.dumps(timings(ops=bad_op(ns="3"))), "op 0: ns is '3'"),
        (json.dumps(timings(ops=bad_op(flops=float("nan")))), "op 0: flops is nan"),
        (json.dumps(timings(ops=bad_op(flops=1e18))), "does not fit l4"),
    ],
)
def test_bad_timings_are_one_line(
    tmp_path: Path, saved: Path, content: str, message: str, capsys: Capture
) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(content.encode(errors="surrogatepass"))
    assert main(["calibrate", "--timings", str(path), "--device", "l4"]) in (1, 2)
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1
    assert not saved.exists()


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{}",
        '{"format": 1, "devices": []}',
        '{"format": 1, "devices": {"l4": 3}}',
        '{"format": 1, "devices": {"l4": {"calibration": "x", "constants": {"magic": 1}}}}',
        '{"format": 1, "devices": {"l4": {"calibration": "x", "constants": {"matmul_share": -1}}}}',
        '{"format": 1, "devices": {"x": {"calibration": "x", "constants": {"matmul_share": 1}}}}',
    ],
)
def test_damaged_calibrations_are_one_line(
    model_file: str, saved: Path, content: str, capsys: Capture
) -> None:
    saved.parent.mkdir(parents=True)
    saved.write_text(content)
    assert main(["estimate", model_file, "--device", "l4"]) in (1, 2)
    error = capsys.readouterr().err
    assert str(saved) in error
    assert "run tidegauge calibrate again" in error
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--measured", "1ms", "--device", "l4"], "--measured needs the TARGET"),
        (["x.py", "--measured", "1ms"], "calibrate needs --device"),
        (["x.py", "--forget", "--device", "l4"], "only --measured takes a TARGET"),
        (["--forget", "--device", "l4"], "l4 has no calibration"),
        (["--timings", "missing.json", "--device", "l4"], "missing.json"),
    ],
)
def test_wrong_use_is_reported(arguments: list[str], message: str, capsys: Capture) -> None:
    assert main(["calibrate", *arguments]) in (1, 2)
    assert message in capsys.readouterr().err


def test_script_writes_timings_that_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    path = str(tmp_path / "t.json")
    options = ["--device", "cpu", "--size", "64", "--repeats", "2"]
    monkeypatch.setattr(sys, "argv", ["time_ops.py", path, *options])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    ops = json.loads(Path(path).read_text())["ops"]
    assert {each["kind"] for each in ops} == {
        *("matmul", "attention", "convolution", "memory", "launch")
    }
    capsys.readouterr()
    # A CPU is no L4: it is far slower, or the numbers are plausible and are saved.
    code = main(["calibrate", "--timings", path, "--device", "l4"])
    output = capsys.readouterr()
    assert code in (0, 2)
    assert "a CPU" in output.out + output.err
