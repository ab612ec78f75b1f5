# SPDX-License-Identifier: BSD-3-Clause
"""Times of modules on a device that is not there."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import tidegauge
import torch
from tidegauge.runtime_estimator import RuntimeEstimator
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.runtime_estimator import RuntimeEstimator as Upstream
from torch.utils.checkpoint import checkpoint
from torch_version import PEAK_TIMES_1000
from upstream_estimators import H100_GB, H100_TFLOPS, square, tflops, upstream_estimators

COST_MODEL = "operator-level-cost-model"
MODES = {
    "real": (nullcontext, "cpu"),
    "fake": (FakeTensorMode, "cpu"),
    "simulated": (lambda: tidegauge.simulate(device="cuda"), "cuda"),
}


class Net(nn.Module):
    def __init__(self, device: str = "cpu", recompute: bool = False) -> None:
        super().__init__()
        self.first = nn.Linear(512, 2048, device=device)
        self.second = nn.Linear(2048, 512, device=device)
        self.recompute = recompute

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = checkpoint(self.begin, x, use_reentrant=False) if self.recompute else self.begin(x)
        out: torch.Tensor = self.second(y)
        return out

    def begin(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.first(x))


def estimate(
    mode: str = "fake", steps: int = 1, recompute: bool = False, device: str = "h100-80g"
) -> RuntimeEstimator:
    context, place = MODES[mode]
    with context():
        model = Net(place, recompute)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x = torch.ones(4096, 512, device=place)
        estimator = RuntimeEstimator(device=device)
        with estimator(COST_MODEL):
            for _ in range(steps):
                model(x).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
    return estimator


@pytest.mark.parametrize("mode", MODES)
def test_modules_share_the_time_of_the_step(mode: str) -> None:
    """Backward has two products for each product of forward, but none for the input."""
    estimator = estimate(mode)
    times = estimator.mod_runtimes
    assert estimator.total_runtime == pytest.approx(sum(times["Global"].values()))
    for phase in ("fw", "bw"):
        parts = times["Net.first"][phase] + times["Net.second"][phase]
        assert parts < times["Net"][phase] <= times["Global"][phase]
    assert times["Net.second"]["bw"] > 1.8 * times["Net.second"]["fw"]
    assert times["Net.first"]["bw"] < 1.8 * times["Net.first"]["fw"]


def test_real_fake_and_simulated_tensors_take_the_same_time() -> None:
    runs = [estimate(mode).mod_runtimes for mode in MODES]
    for name in ("Net", "Net.first", "Net.second"):
        assert runs[1][name] == pytest.approx(runs[0][name])
        assert runs[2][name] == pytest.approx(runs[0][name], rel=0.05)


def test_orders_are_those_of_the_calls() -> None:
    estimator = estimate()
    assert estimator.mod_fw_pre_order == ["Net", "Net.first", "Net.second"]
    assert estimator.mod_fw_post_order == ["Net.first", "Net.second", "Net"]
    assert estimator.mod_bw_pre_order == ["Net", "Net.second", "Net.first"]
    assert sorted(estimator.mod_bw_post_order) == ["Net", "Net.first", "Net.second"]


def test_recomputation_is_part_of_backward() -> None:
    plain, recomputed = estimate(), estimate(recompute=True)
    first = plain.mod_runtimes["Net.first"]
    assert recomputed.mod_fw_pre_order == plain.mod_fw_pre_order
    assert recomputed.mod_runtimes["Net.first"]["fw"] == pytest.approx(first["fw"])
    more = recomputed.mod_runtimes["Net.first"]["bw"] - first["bw"]
    assert more == pytest.approx(first["fw"], rel=0.01)


def test_slower_device_takes_longer() -> None:
    assert estimate(device="a100-80g").total_runtime > 1.3 * estimate().total_runtime


def test_products_stay_below_the_peak_of_the_device() -> None:
    """Upstream halves the flops and so assumes 150 % of the peak."""
    size = 8192
    with upstream_estimators():
        _, theirs = Upstream._roofline_estimate(
            torch.ops.aten.mm.default, (square(size), square(size)), {}
        )
    limit_of_memory = size / 3 * H100_GB / 1000  # 2 bytes of 3 matrices: size / 3 flops each
    expected = limit_of_memory if PEAK_TIMES_1000 else 1.5 * H100_TFLOPS
    assert tflops(theirs, size) == pytest.approx(expected)
    with FakeTensorMode():
        estimator = RuntimeEstimator(device="h100-80g")
        with estimator(COST_MODEL):
            square(size) @ square(size)
    assert 0.5 * H100_TFLOPS < tflops(estimator.total_runtime, size) < 0.8 * H100_TFLOPS


def test_flash_attention_in_bfloat16_has_a_time() -> None:
    """Upstream fails because the op has results of two dtypes."""
    op = torch.ops.aten._scaled_dot_product_flash_attention.default
    with upstream_estimators():
        query = torch.empty(1, 8, 1024, 64, dtype=torch.bfloat16, device="cuda")
        with pytest.raises(AssertionError, match="Only support single out dtype"):
            Upstream._roofline_estimate(op, (query, query, query), {})
    with tidegauge.simulate(device="cuda"):
        query = torch.empty(1, 8, 1024, 64, dtype=torch.bfloat16, device="cuda")
        estimator = RuntimeEstimator(device="h100-80g")
        with estimator(COST_MODEL):
            op(query, query, query)
    assert estimator.total_runtime > 4 * 8 * 1024 * 1024 * 64 / (H100_TFLOPS * 1e9)


def test_last_of_several_steps_counts() -> None:
    """Upstream adds them up."""
    one, three = estimate(), estimate(steps=3)
    assert three.total_runtime == pytest.approx(one.total_runtime)
    assert three.mod_runtimes["Net"] == pytest.approx(one.mod_runtimes["Net"])
    assert three.mod_fw_pre_order == one.mod_fw_pre_order
    totals = []
    for steps in (1, 3):
        with upstream_estimators():
            model, x = Net(), torch.ones(4096, 512)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            estimator = Upstream()
            with estimator(COST_MODEL):
                for _ in range(steps):
                    model(x).sum().backward()
                    optimizer.step()
                    optimizer.zero_grad()
            totals.append(estimator.total_runtime)
    assert totals[1] == pytest.approx(3 * totals[0], rel=0.01)


def test_micro_batches_of_one_step_add_up() -> None:
    with FakeTensorMode():
        model, x = Net(), torch.ones(4096, 512)
        one, two = RuntimeEstimator(device="h100-80g"), RuntimeEstimator(device="h100-80g")
        with one(COST_MODEL):
            model(x).sum().backward()
        with two(COST_MODEL):
            for _ in range(2):
                model(x).sum().backward()
    assert two.mod_runtimes["Net"]["fw"] == pytest.approx(2 * one.mod_runtimes["Net"]["fw"])
    assert two.mod_fw_pre_order == 2 * one.mod_fw_pre_order


def test_ops_on_the_host_take_no_time_of_the_device() -> None:
    totals = []
    for host_ops in (0, 5):
        with tidegauge.simulate(device="cuda"):
            estimator = RuntimeEstimator(device="h100-80g")
            x, y = torch.ones(64, 64, device="cuda"), torch.ones(64, 64)
            with estimator(COST_MODEL):
                x = x @ x
                for _ in range(host_ops):
                    y = y @ y
        totals.append(estimator.total_runtime)
    assert totals[0] == totals[1] > 0


def test_exit_prints_the_total_and_what_it_rests_on(capsys: pytest.CaptureFixture[str]) -> None:
    estimator = estimate()
    assert capsys.readouterr().out == (
        f"Estimated (operator-level-cost-model)total_time: {estimator.total_runtime:.3f} ms on "
        "h100-80g, from its data sheet\n"
    )
    estimator.display_modulewise_stats(depth=1)
    times = estimator.mod_runtimes
    assert capsys.readouterr().out.splitlines() == [
        "Pre-Forward Execution Order: ",
        "Net",
        "Pre-Backward Execution Order: ",
        "Net",
        *(f"{name} fw: {times[name]['fw']:.3f}ms bw: {times[name]['bw']:.3f}ms"
          for name in ("Global", "Net")),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("NVIDIA H100", "h100-80g"),
        ("NVIDIA H100 80GB HBM3", "h100-80g"),
        ("NVIDIA A100-SXM4-40GB", "a100-40g"),
        ("NVIDIA A100-SXM4-80GB", "a100-80g"),
        ("NVIDIA L4", "l4"),
        ("l4", "l4"),
    ],
)
def test_name_that_cuda_reports_is_a_device(name: str, key: str) -> None:
    assert RuntimeEstimator(name)._device == key


def test_bad_settings_are_reported() -> None:
    with pytest.raises(ValueError, match="unknown device 'h1000'"):
        RuntimeEstimator(device="h1000")
    with pytest.raises(ValueError, match="name one"):
        RuntimeEstimator("NVIDIA L4", device="l4")
    with pytest.raises(NotImplementedError, match="'operator-level-cost-model'"):
        RuntimeEstimator()("measured-by-eye")


def test_failed_step_leaves_nothing_behind() -> None:
    estimator = RuntimeEstimator(device="h100-80g")
    model = Net()
    with pytest.raises(RuntimeError), estimator(COST_MODEL):
        model(torch.ones(3, 3))
    with estimator(COST_MODEL):
        model(torch.ones(3, 512)).sum().backward()
    assert estimator.mod_fw_post_order == ["Net.first", "Net.second", "Net"]
