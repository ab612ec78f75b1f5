# SPDX-License-Identifier: BSD-3-Clause
"""Plans hold when they are applied: the real run has the predicted peak, the same gradients and the
predicted recompute; random models stay below their budgets."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import real_run
import torch
from planned_models import NAMES, make_contract
from tidegauge.allocator import find_device
from tidegauge.estimation import Contract, Estimator
from tidegauge.estimation.plan import Plan
from tidegauge.planning.plan_file import AppliedPlan, load, make_applied
from tidegauge.planning.planner import PlanResult, find_plan
from tidegauge.planning.speed import Speed
from torch import nn

L4 = find_device("l4")


def plan_at(estimator: Estimator, part: float) -> PlanResult:
    """The plan for a budget between the needs with full and without checkpointing."""
    high = [estimator.estimate(Plan(ac=ac), L4).high_bytes for ac in ("full", "none")]
    least, most = min(high), max(high)
    return find_plan(estimator, Plan(), L4, budget_bytes=least + round((most - least) * part))


def apply_to(contract: Contract, applied: AppliedPlan) -> Contract:
    def build(settings: object) -> nn.Module:
        return applied.apply(contract.build_model(settings))

    return Contract(contract.name, build, contract.make_inputs, contract.compute_loss)


def write_and_load(found: PlanResult, folder: Path) -> AppliedPlan:
    path = folder / "plan.json"
    path.write_text(make_applied(found.blocks, found.chosen.kinds, {}).to_json())
    return load(path)


@pytest.mark.parametrize("name", NAMES)
def test_peak_of_an_applied_plan_is_that_of_a_real_run(name: str, tmp_path: Path) -> None:
    """To the byte. The tensors on the CPU decide, since its kernels differ from a GPU's."""
    contract = make_contract(name)
    with Estimator(contract, simulated_device="cpu") as estimator:
        found = plan_at(estimator, 0.4)
    applied = write_and_load(found, tmp_path)
    real = real_run.train(apply_to(contract, applied), Plan(), tmp_path / "real.tide")
    assert real["peak_bytes"] == found.chosen.estimate.peak.total_bytes
    assert real["first_step_bytes"] == found.chosen.estimate.first_step_bytes
    assert real["categories"] == found.chosen.estimate.peak.categories


def test_most_of_these_models_need_checkpointing_to_fit() -> None:
    """Otherwise the test above says nothing."""
    chosen = []
    for name in NAMES:
        with Estimator(make_contract(name), simulated_device="cpu") as estimator:
            chosen.append(set(plan_at(estimator, 0.4).chosen.kinds) != {"none"})
    assert sum(chosen) >= len(NAMES) - 2


@pytest.mark.parametrize("name", NAMES)
def test_gradients_under_a_plan_are_the_same(name: str, tmp_path: Path) -> None:
    contract = make_contract(name)
    with Estimator(contract, simulated_device="cpu") as estimator:
        found = plan_at(estimator, 0.2)
    applied = write_and_load(found, tmp_path)
    gradients = []
    for is_applied in (False, True):
        torch.manual_seed(0)
        model = contract.build_model(contract.resolve({}))
        inputs = contract.make_inputs(contract.resolve({}))
        if is_applied:
            applied.apply(model)
        contract.compute_loss(model, inputs).backward()  # type: ignore[no-untyped-call]
        gradients.append({key: each.grad for key, each in model.named_parameters()})
    assert gradients[0].keys() == gradients[1].keys()
    for key, expected in gradients[0].items():
        assert expected is not None
        assert torch.equal(expected, gradients[1][key])


@pytest.mark.parametrize("name", NAMES)
def test_recompute_is_predicted_exactly(name: str) -> None:
    """What a plan recomputes is what its step computes more than a step without checkpointing."""
    speed = Speed("l4")
    with Estimator(make_contract(name)) as estimator:
        without = estimator.step_of(estimator.estimate(Plan(), L4)).time(speed)
        for part in (0.0, 0.5):
            step = estimator.step_of(plan_at(estimator, part).chosen.estimate).time(speed)
            assert step["flops"] - without["flops"] == step["recompute_flops"]


@pytest.mark.parametrize("name", ["gpt", "resnet", "unequal"])
def test_equal_questions_have_equal_answers(name: str) -> None:
    found = []
    for _ in range(2):
        with Estimator(make_contract(name)) as estimator:
            result = plan_at(estimator, 0.5)
            rows = [(row.name, row.estimate.high_bytes, row.time) for row in result.rows]
            found.append((result.chosen.kinds, rows, result.simulated, result.gain_ns))
    assert found[0] == found[1]


@pytest.mark.parametrize("name", ["gpt", "mixed"])
def test_less_budget_is_never_faster_and_never_needs_more(name: str) -> None:
    with Estimator(make_contract(name)) as estimator:
        found = [plan_at(estimator, part / 8) for part in range(9)]
    times = [each.chosen.step_ns for each in found]
    assert times == sorted(times, reverse=True)
    needs = [each.chosen.estimate.high_bytes for each in found]
    assert needs == sorted(needs)
    for each in found:
        assert each.chosen.step_ns <= min(row.step_ns for row in each.rows if row.fits)


class Random(nn.Module):
    """Blocks of random sizes, some of them equal."""

    def __init__(self, choose: random.Random, width: int) -> None:
        super().__init__()
        sizes = [choose.choice((1, 2, 4, 9)) * width for _ in range(choose.randint(1, 3))]
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(width, size), nn.GELU(), nn.Linear(size, width))
            for size in sizes
            for _ in range(choose.randint(1, 3))
        )
        self.head = nn.Linear(width, choose.choice((8, 500, 4000)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


def make_random(seed: int) -> Contract:
    choose = random.Random(seed)
    width, rows = choose.choice((32, 128, 250)), choose.choice((64, 1000, 4096))

    def build(settings: object) -> nn.Module:
        return Random(random.Random(seed), width)

    return Contract(
        name=f"random {seed}",
        build_model=build,
        make_inputs=lambda settings: torch.randn(rows, width),
        compute_loss=lambda model, x: model(x).square().mean(),
    )


@pytest.mark.parametrize(
    "seed", [*range(6), *(pytest.param(i, marks=pytest.mark.long) for i in range(6, 200))]
)
def test_random_model_stays_below_its_budget(seed: int) -> None:
    """The plan is read from its file form, applied and simulated again."""
    contract = make_random(seed)
    with Estimator(contract) as estimator:
        found = plan_at(estimator, random.Random(-seed).random())
    applied = make_applied(found.blocks, found.chosen.kinds, {})
    with Estimator(apply_to(contract, applied)) as again:
        assert again.estimate(Plan(), L4).high_bytes <= found.budget_bytes
