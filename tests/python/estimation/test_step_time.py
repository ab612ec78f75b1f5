# SPDX-License-Identifier: BSD-3-Clause
"""The modelled time of a step: closed forms, sums of its parts, and what is printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tidegauge.allocator import find_device
from tidegauge.cli.main import main
from tidegauge.estimation import Contract, Estimate, Estimator, estimate, load_contract
from tidegauge.estimation.plan import Plan
from tidegauge.estimation.step_time import StepTime
from torch import nn

Capture = pytest.CaptureFixture[str]
L4 = find_device("l4")
# l4: 30.3 TFLOPS in float32, of which products are taken to reach 77.5 % of 93 %.
L4_FLOPS = 30.3e12 * 0.775 * 0.93


def make_contract(width: int = 4096, batch: int = 4096) -> Contract:
    return Contract(
        name="layer",
        build_model=lambda settings: nn.Sequential(nn.Linear(width, width, bias=False)),
        make_inputs=lambda settings: torch.randn(batch, width),
        compute_loss=lambda model, x: model(x).sum(),
    )


def time_of(found: Estimate) -> StepTime:
    assert found.time is not None
    return found.time


def test_time_of_one_layer_is_that_of_its_two_products() -> None:
    """Forward and the gradient of the weight; the input needs none."""
    with Estimator(make_contract()) as estimator:
        time = time_of(estimator.estimate(Plan(optimizer="sgd"), L4))
    one = 2 * 4096**3
    assert time.flops == 2 * one
    mm = next(each for each in time.ops if each.op == "aten::mm")
    assert mm.calls == 2
    assert mm.ms == pytest.approx(2 * one / L4_FLOPS * 1e3)
    assert time.mfu == pytest.approx(2 * one / 30.3e12 * 1e3 / time.ms)
    assert time.low_ms == pytest.approx(0.7 * time.ms)
    assert time.high_ms == pytest.approx(1.7 * time.ms)


@pytest.mark.parametrize(
    "plan", [Plan(), Plan(ac="full"), Plan(fsdp=4, mp="bf16/fp32"), Plan(dp=2), Plan(accumulate=3)]
)
def test_parts_add_up(model_file: str, plan: Plan) -> None:
    with Estimator(load_contract(model_file)) as estimator:
        time = time_of(estimator.estimate(plan, L4))
    parts = (
        *(time.forward_ms, time.backward_ms, time.recompute_ms, time.optimizer_ms),
        *(time.exposed_ms, time.idle_ms),
    )
    assert time.ms == pytest.approx(sum(parts))
    busy = sum(parts[:4]) + time.communication_ms
    ops = sum(each.ms for each in time.ops)
    if plan.is_sharded:  # copies into and out of buffers run on streams of their own
        assert ops > busy
    else:
        assert ops == pytest.approx(busy)
    assert bool(time.recompute_ms) == (plan.ac == "full") == bool(time.recompute_flops)
    assert bool(time.communication_ms) == (plan.world_size > 1)


def test_modules_have_the_time_of_their_ops(model_file: str) -> None:
    with Estimator(load_contract(model_file)) as estimator:
        time = time_of(estimator.estimate(Plan(), L4))
    times = {each.name: each for each in time.modules}
    root = time.modules[0]
    assert root.name == "Model"
    # The optimizer and the loss are no part of the model.
    assert root.total_ms < time.forward_ms + time.backward_ms
    assert root.total_ms == pytest.approx(sum(each.own_ms for each in time.modules))
    block = times["Model.blocks.1"]
    assert block.total_ms == pytest.approx(
        block.own_ms + times["Model.blocks.1.one"].own_ms + times["Model.blocks.1.two"].own_ms
    )
    # Forward, and the gradients of input and weight: each is a kernel of the least time, 2 us.
    assert times["Model.blocks.1.two"].own_ms == pytest.approx(3 * 0.002)


def test_recompute_belongs_to_its_module(model_file: str) -> None:
    with Estimator(load_contract(model_file)) as estimator:
        none, full = (time_of(estimator.estimate(Plan(ac=ac), L4)) for ac in ("none", "full"))
    own = [
        {each.name: each.own_ms for each in time.modules}["Model.blocks.1.one"]
        for time in (none, full)
    ]
    assert own[1] == pytest.approx(own[0] + 0.002)


def test_tokens_are_those_of_one_device(model_file: str) -> None:
    found = estimate(model_file, device="l4", fsdp=4, accumulate=3)
    time = time_of(found)
    assert time.tokens_per_second == pytest.approx(4 * 16 * 3 / time.ms * 1e3)
    with Estimator(make_contract(64, 64)) as estimator:
        assert time_of(estimator.estimate(Plan(), L4)).tokens_per_second is None


def test_estimate_without_a_known_device_has_no_time(model_file: str, capsys: Capture) -> None:
    assert estimate(model_file).time is None
    assert estimate(model_file, device_memory="16GiB").time is None
    assert main(["estimate", model_file]) == 0
    assert "Step time" not in capsys.readouterr().out


def test_every_output_says_that_times_are_not_calibrated(
    model_file: str, tmp_path: Path, capsys: Capture
) -> None:
    command = ["estimate", model_file, "--device", "l4"]
    assert main([*command, "--timeline", "step.json", "--top", "2"]) == 0
    text = capsys.readouterr().out
    assert "Not calibrated: from the NVIDIA L4 data sheet" in text
    assert "Modules by time" in text
    assert main([*command, "--json", "--top", "2"]) == 0
    answer = json.loads(capsys.readouterr().out)["time"]
    assert not answer["is_calibrated"]
    assert answer["basis"].startswith("not calibrated")
    assert len(answer["modules"]) == len(answer["ops"]) == 2
    assert "(not calibrated)" in str(estimate(model_file, device="l4"))
    assert "not calibrated" in (tmp_path / "step.json").read_text()


def test_timeline_has_each_op_on_its_stream(model_file: str, tmp_path: Path) -> None:
    command = ["estimate", model_file, "--device", "h100-80g", "--fsdp", "4", "--ac", "full"]
    assert main([*command, "--timeline", "step.json"]) == 0
    events = json.loads((tmp_path / "step.json").read_text())["traceEvents"]
    slices = [each for each in events if each["ph"] == "X"]
    assert {each["cat"] for each in slices} == {
        *("forward", "backward", "recompute", "optimizer step")
    }
    for stream in {each["tid"] for each in slices}:
        ends = 0.0
        for each in slices:
            if each["tid"] == stream:
                assert each["ts"] >= ends - 1e-6
                ends = each["ts"] + each["dur"]
    gathers = [each for each in slices if "allgather" in each["name"]]
    assert gathers
    assert all(each["tid"] for each in gathers)
    matmuls = [each for each in slices if each["name"] == "aten::mm" and not each["tid"]]
    assert any(each["args"]["module"].endswith("blocks.2.two") for each in matmuls)
    assert main([*command, "--timeline", "step.json"]) != 0  # exists


def test_ops_without_a_model_are_listed(capsys: Capture) -> None:
    contract = Contract(
        name="fft",
        build_model=lambda settings: nn.Linear(64, 64),
        make_inputs=lambda settings: torch.randn(8, 64),
        compute_loss=lambda model, x: torch.fft.rfft(model(x)).abs().sum(),
    )
    with Estimator(contract) as estimator:
        time = time_of(estimator.estimate(Plan(), L4))
    assert [each.op for each in time.unknown_ops] == ["aten::_fft_r2c", "aten::_fft_c2r"] or {
        each.op for each in time.unknown_ops
    } == {"aten::_fft_r2c", "aten::_fft_c2c"}
