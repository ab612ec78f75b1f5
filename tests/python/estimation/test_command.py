# SPDX-License-Identifier: BSD-3-Clause
"""`tidegauge estimate`: output, exit codes, and messages for wrong use."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pages import unpack
from tidegauge.cli.main import main
from tidegauge.estimation import Estimate, Estimator
from tidegauge.estimation.plan import Plan
from torch_version import KEPT_WORKSPACES

Golden = Callable[[str, str], None]
Capture = pytest.CaptureFixture[str]

SHARDED = ["--fsdp", "4", "--mp", "bf16/fp32", "--ac", "selective", "--set", "batch=64"]
NOTHING_ELSE = [  # no other memory, so that the few bytes of the model decide
    *("--assume", "context=1MiB", "--assume", "communication=1MiB")
]
LARGE = ["--set", "batch=4096", *NOTHING_ELSE]
COMMANDS_THAT_PRINT = [
    ("estimate", ["--rank", "all"], 0),
    ("estimate_cpu", ["--simulate", "cpu", "--top", "1"], 0),
    ("estimate_sharded", [*SHARDED, "--device", "h100-80g"], 0),
    ("estimate_uneven", ["--fsdp", "7", "--rank", "all", "--top", "2"], 0),
    ("estimate_json", [*SHARDED, "--device", "h100-80g", "--json", "--top", "1"], 0),
    ("estimate_advice", ["--fsdp", "4", *LARGE, "--device-memory", "130MiB", "--top", "1"], 3),
    ("estimate_too_close", ["--fsdp", "2", "--device-memory", "1GiB", "--no-advice"], 0),
    ("estimate_sweep", ["--sweep", "batch=4,64", "--sweep", "fsdp=1,0,2"], 0),
    ("estimate_max", [*NOTHING_ELSE, "--device-memory", "40MiB", "--max", "batch"], 0),
]


def normalise(text: str) -> str:
    text = re.sub(r'("seconds"): [\d.]+', r"\1: 0.1", text)
    text = re.sub(r'("(?:after|longest_whole)_ns"): -?\d+', r"\1: 0", text)
    text = re.sub(r"torch \d+\.\d+\.\d+(\+\w+)?", "torch 2.13.0", text)
    text = re.sub(r'("torch_version"): "[^"]*"', r'\1: "2.13.0"', text)
    return re.sub(r"steps in [\d.]+ s", "steps in 0.1 s", text)


def test_refused_gpu_ends_the_command_with_the_option_that_helps(model_file: str) -> None:
    """A whole process, in which torch says that it was built for ROCm."""

    def estimate(*options: str) -> subprocess.CompletedProcess[str]:
        code = (
            "import sys, torch; torch.version.hip = '6.4'; from tidegauge.cli.main import main; "
            f"sys.exit(main(['estimate', *{[model_file, *options]}]))"
        )
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    refused = estimate()
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == (
        "tidegauge: cannot simulate a GPU: simulate(device='cuda') is not possible here: this torch"
        " build has ROCm; install one with CUDA or for the CPU; for a rougher estimate with CPU"
        " kernels use --simulate cpu (in Python simulated_device='cpu')\n"
    )
    asked_for = estimate("--simulate", "cpu")
    assert (asked_for.returncode, asked_for.stderr) == (0, "")
    assert "Needs " in asked_for.stdout


@pytest.mark.parametrize(("name", "arguments", "code"), COMMANDS_THAT_PRINT)
def test_output_equals_the_golden_file(
    model_file: str, name: str, arguments: list[str], code: int, golden: Golden, capsys: Capture
) -> None:
    if KEPT_WORKSPACES and name != "estimate_cpu":
        pytest.skip(KEPT_WORKSPACES.text)
    assert main(["estimate", model_file, *arguments]) == code
    output = capsys.readouterr()
    golden(f"{name}.txt", normalise(output.out))
    if "--json" in arguments:
        json.loads(output.out)
    else:
        assert max(map(len, output.out.splitlines())) <= 80


WRONG_USE = [
    (["--set", "btch=2"], "small_model.py has no setting 'btch': did you mean batch?"),
    (["--set", "batch"], "invalid --set 'batch' (expected NAME=VALUE, e.g. batch=2)"),
    (["--set", "batch=two"], "invalid batch 'two' (expected an integer)"),
    (["--device", "h100"], "unknown device 'h100': did you mean h100-80g or "),
    (["--fsdp", "0"], "invalid fsdp '0' (expected a number of ranks, at least 1)"),
    (["--hsdp", "8"], "invalid hsdp '8' (expected replicas x ranks, e.g. 2x4)"),
    (["--hsdp", "2x4", "--fsdp", "8"], "fsdp=8 and hsdp=2x4 are mutually exclusive"),
    (["--fsdp", "8", "--reshard", "3"], "a number of ranks that divides 8"),
    (["--reshard", "yes"], "reshard requires fsdp or hsdp"),
    (["--ac", "selectve"], "invalid ac 'selectve': did you mean selective?"),
    (["--mp", "int8"], "invalid mp 'int8': expected bf16, fp16, fp32"),
    (["--optimizer", "adamx"], "invalid optimizer 'adamx': did you mean adam"),
    (["--rank", "4", "--fsdp", "4"], "invalid rank '4' (expected worst, all, or 0 to 3)"),
    (["--tp", "2"], "tp requires a function tensor_parallel_plan(model)"),
    (["--max", "batch"], "searching for the largest batch requires a device"),
    (["--max", "colour", "--device", "l4"], "integer settings: batch, seq, width, layers, words"),
    (["--sweep", "batch=1", "--max", "batch"], "--sweep and --max are mutually exclusive"),
    (["--alloc-conf", "nonsense:1"], "nonsense"),
    (["--assume", "context=much"], "invalid size 'much'"),
    (["--assume", "context=24"], "size '24' has no unit (expected e.g. 24GiB)"),
    (["--set", "batch=0"], "make_inputs of small_model.py returned an empty tensor [0, 16]"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG_USE, ids=lambda value: str(value)[:40])
def test_wrong_use_is_reported(
    model_file: str, arguments: list[str], message: str, capsys: Capture
) -> None:
    assert main(["estimate", model_file, *arguments]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert message in output.err


def test_size_without_a_unit_is_refused(model_file: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["estimate", model_file, "--device-memory", "24"])
    assert "size '24' has no unit (expected e.g. 24GiB)" in capsys.readouterr().err


BROKEN = [
    ("def build_model(settings): pass", 2, "does not define make_inputs, compute_loss"),
    ("import nowhere_to_be_found", 1, "cannot import broken.py (broken.py, line 1)"),
    ("BUILD: return 3", 2, "build_model of broken.py returned a int (expected a torch.nn.Module)"),
    ("BUILD: return torch.nn.ReLU()", 2, "the model of broken.py has no parameters to train"),
    ("BUILD: raise KeyError('size')", 1, "build_model of broken.py failed (broken.py, line 2)"),
    ("LOSS: return model(inputs)", 2, "returned a tensor of shape (1, 8), requires_grad=True"),
    (
        "LOSS: return None",
        2,
        "compute_loss of broken.py returned a NoneType (expected",
    ),
    ("LOSS: return model(inputs).sum() if inputs.sum() > 0 else 0", 1, "compute_loss of broken"),
    ("LOSS: return model(inputs).sum() * inputs.sum().item()", 1, "or use `--item 1`"),
]


@pytest.mark.parametrize(("source", "code", "message"), BROKEN, ids=lambda value: str(value)[:40])
def test_broken_target_is_reported(
    source: str,
    code: int,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    if ":" in source.split(" ")[0]:
        which, _, body = source.partition(": ")
        build = body if which == "BUILD" else "return torch.nn.Linear(8, 8)"
        loss = body if which == "LOSS" else "return model(inputs).sum()"
        source = (
            f"import torch\ndef build_model(settings): {build}\n"
            "def make_inputs(settings): return torch.randn(1, 8)\n"
            f"def compute_loss(model, inputs): {loss}\n"
        )
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.py").write_text(source)
    assert main(["estimate", "broken.py"]) == code
    output = capsys.readouterr()
    assert output.out == ""
    assert message in output.err


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("nowhere.py", "(expected a Python file, a config.json or module:Class)"),
        ("nowhere:Class", "No module named 'nowhere'"),
        ("torch.nn:relu", "has no torch.nn.Module named relu"),
        ("torch.nn:Linear", "requires --config FILE"),
    ],
)
def test_invalid_target_is_reported(target: str, message: str, capsys: Capture) -> None:
    assert main(["estimate", target]) == 2
    assert message in capsys.readouterr().err


def test_ctrl_c_prints_the_results_so_far(
    model_file: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    ask = Estimator.estimate

    def interrupted(self: Estimator, plan: Plan, *args: object) -> Estimate:
        if dict(plan.settings)["batch"] == 3:
            raise KeyboardInterrupt
        return ask(self, plan, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Estimator, "estimate", interrupted)
    assert main(["estimate", model_file, "--sweep", "batch=1,2,3,4", "--json"]) == 130
    found = json.loads(capsys.readouterr().out)
    assert [point["values"] for point in found["points"]] == [{"batch": "1"}, {"batch": "2"}]
    assert not found["is_whole"]


def test_trace_can_be_kept_for_a_report(model_file: str, capsys: Capture) -> None:
    arguments = ["estimate", model_file, "--fsdp", "2", "--trace", "run.tide", "--json"]
    assert main(arguments) == 0
    found = json.loads(capsys.readouterr().out)
    assert main(["report", "run.tide", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    (peak,) = (each for each in report["peaks"] if each["device"] == "cuda:0")
    assert peak["total_bytes"] == found["peak"]["total_bytes"]
    assert main(arguments) == 1
    assert "run.tide exists" in capsys.readouterr().err


@pytest.mark.parametrize("options", [[], ["--sweep", "batch=1,2"]], ids=["one", "sweep"])
def test_page_shows_the_runs(model_file: str, options: list[str], capsys: Capture) -> None:
    command = ["estimate", model_file, "--fsdp", "2", "--html", "page.html", *options]
    assert main(command) == 0
    assert f"<title>estimate of {model_file}" in Path("page.html").read_text()
    assert ("sweep" in unpack("page.html")[0]) == bool(options)
    assert main(command) == 1  # before any work
    assert "page.html exists" in capsys.readouterr().err


FEW_BYTES = [*NOTHING_ELSE, "--device-memory", "40MiB"]


@pytest.mark.parametrize(
    "options",
    [
        ["--sweep", "batch=4,1024", "--sweep", "fsdp=1,0", *FEW_BYTES],
        ["--sweep", "device=l4,h100-80g"],
        ["--max", "batch", *FEW_BYTES],
    ],
    ids=["sweep", "devices", "max"],
)
def test_page_plots_the_bytes_of_all_points(
    model_file: str, options: list[str], capsys: Capture
) -> None:
    assert main(["estimate", model_file, *options, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    if "tried" in found:
        tried = sorted(found["tried"], key=lambda row: row["value"])
        found["points"] = [{**row, "values": {"batch": str(row["value"])}} for row in tried]
    assert main(["estimate", model_file, *options, "--html", "page.html"]) == 0
    header, _ = unpack("page.html")
    plotted = header["sweep"]
    assert len(plotted["points"]) == len(found["points"]) > 1
    for point, expected in zip(plotted["points"], found["points"], strict=True):
        named = zip(plotted["names"], point["values"], strict=True)
        assert dict(named) == expected["values"]
        estimate = expected["estimate"]
        if estimate is None:
            assert point["fault"] == expected["fault"] != ""
            continue
        for name in ("needed_bytes", "low_bytes", "high_bytes", "margin_bytes", "verdict"):
            assert point[name] == estimate[name]
        assert point["device"]["memory_bytes"] == estimate["device"]["memory_bytes"]
    for run in header["runs"]:
        assert run["headline"].startswith(f"estimate of {model_file}, {run['label']}: 2 steps")


def test_output_of_the_target_is_not_in_the_result(model_file: str, capsys: Capture) -> None:
    with open(model_file, "a") as file:
        file.write("print('while it is imported')\nmake = make_inputs\n")
        file.write("def make_inputs(settings):\n    print('later')\n    return make(settings)\n")
    assert main(["estimate", model_file, "--json"]) == 0
    output = capsys.readouterr()
    json.loads(output.out)
    assert output.err == "while it is imported\nlater\n"
