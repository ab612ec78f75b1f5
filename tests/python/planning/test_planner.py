# SPDX-License-Identifier: BSD-3-Clause
"""The plan of a program: below its budget when it is simulated again, and the fastest one."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tidegauge import _core
from tidegauge._util.formatting import render_bytes
from tidegauge.allocator import find_device
from tidegauge.cli.main import main
from tidegauge.estimation import Contract, Estimator
from tidegauge.estimation.block_kinds import CHECKPOINTING, render_ac
from tidegauge.estimation.plan import Plan
from tidegauge.planning import block_model
from tidegauge.planning.planner import BudgetError, PlanResult, find_plan
from tidegauge.planning.speed import Speed
from tidegauge.planning.text import render_plan
from torch import nn

DEVICE = find_device("l4")
L4 = Speed("l4")


class Block(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.down(nn.functional.gelu(self.up(x)))


class Model(nn.Module):
    def __init__(self, width: int, hiddens: list[int]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(width, hidden) for hidden in hiddens)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def make_contract(width: int, hiddens: list[int], batch: int = 8, seq: int = 512) -> Contract:
    return Contract(
        name="model",
        build_model=lambda settings: Model(width, hiddens),
        make_inputs=lambda settings: torch.randn(batch, seq, width),
        compute_loss=lambda model, x: model(x).square().mean(),
    )


def bounds_of(estimator: Estimator) -> tuple[int, int]:
    """The bytes that the run needs with full and without checkpointing, the smaller first."""
    least, most = sorted(
        estimator.estimate(Plan(ac=ac), DEVICE).high_bytes for ac in ("full", "none")
    )
    return least, most


@pytest.fixture(scope="module")
def estimator() -> Iterator[Estimator]:
    with Estimator(make_contract(256, [1024] * 4)) as made:
        yield made


def find(estimator: Estimator, budget: int) -> PlanResult:
    return find_plan(estimator, Plan(), DEVICE, budget_bytes=budget)


def test_plan_without_a_need_to_save_is_none(estimator: Estimator) -> None:
    found = find(estimator, bounds_of(estimator)[1])
    assert set(found.chosen.kinds) == {"none"}
    assert found.slowdown == 0


def test_plan_fits_and_is_never_slower_than_simple_ones(estimator: Estimator) -> None:
    least, most = bounds_of(estimator)
    times = []
    for part in range(6):
        found = find(estimator, least + (most - least) * part // 5)
        assert found.chosen.estimate.high_bytes <= found.budget_bytes
        fitting = [row.step_ns for row in found.rows if row.fits]
        assert found.chosen.step_ns <= min(fitting)
        times.append(found.chosen.step_ns)
    assert times[0] == max(times)
    assert times[-1] == min(times) < times[0]


def test_front_is_what_no_simulated_plan_beats(estimator: Estimator) -> None:
    least, most = bounds_of(estimator)
    found = find(estimator, (least + most) // 2)
    figures = [(row.step_ns, row.estimate.high_bytes) for row in found.front]
    assert figures == sorted(figures)
    needs = [need for _, need in figures]
    assert needs == sorted(set(needs), reverse=True)
    assert found.chosen in found.front
    for row in (*found.rows, *found.front):
        assert any(
            time <= row.step_ns and need <= row.estimate.high_bytes for time, need in figures
        )
        again = estimator.estimate(Plan(ac=row.estimate.plan.ac), DEVICE)
        assert again.high_bytes == row.estimate.high_bytes


def test_effects_of_blocks_are_those_of_the_simulated_runs(estimator: Estimator) -> None:
    """Equal blocks, so each one saves the same bytes and a quarter of the recompute."""
    least, _ = bounds_of(estimator)
    found = find(estimator, least)
    assert len(set(found.chosen.kinds)) == 1
    total_ns = sum(effect.recompute_ns for effect in found.effects)
    assert total_ns == pytest.approx(found.chosen.time["recompute_ns"])
    kept = {
        ac: [
            after.before_bytes - block.before_bytes
            for block, after in itertools.pairwise(step.blocks)
        ]
        for ac in ("none", found.chosen.kinds[0])
        if (step := estimator.step_of(estimator.estimate(Plan(ac=ac), DEVICE)))
    }
    saved = [a - b for a, b in zip(*kept.values(), strict=True)]
    assert [effect.saved_bytes for effect in found.effects][: len(saved)] == saved
    assert saved[0] > 0
    text = render_plan(found)
    assert "no simulated plan beats these" in text
    assert f"each saves {render_bytes(saved[0])} for" in " ".join(text.split())


def test_gap_of_a_search_that_rounds_is_part_of_the_answer(
    estimator: Estimator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With so few points the search merges plans, and says what that may cost."""
    find_plans = _core.PlanProblem.find_plans

    class Rounding:
        def __init__(self, *arguments: Any) -> None:
            self._problem = _core.PlanProblem(*arguments)

        def find_plans(self) -> Any:
            return find_plans(self._problem, most_points=2)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._problem, name)

    least, most = bounds_of(estimator)
    exact = find(estimator, (least + most) // 2)
    assert exact.gap_ns == 0
    monkeypatch.setattr(block_model, "_core", SimpleNamespace(PlanProblem=Rounding))
    rounded = find(estimator, (least + most) // 2)
    assert 0 < rounded.gap_ns <= rounded.gain_ns
    assert "because the search rounded times" in " ".join(render_plan(rounded).split())
    assert rounded.chosen.step_ns - exact.chosen.step_ns <= rounded.gain_ns


def test_plan_is_the_fastest_of_all_combinations() -> None:
    """All 4 x 4 plans of two blocks, each simulated."""
    with Estimator(make_contract(256, [512, 2048])) as estimator:
        every = []
        for kinds in itertools.product(CHECKPOINTING, repeat=2):
            estimate = estimator.estimate(Plan(ac=render_ac(kinds)), DEVICE)
            time = estimator.step_of(estimate).time(L4)["total_ns"]
            every.append((estimate.high_bytes, time))
        for budget in sorted({high for high, _ in every}):
            best = min(time for high, time in every if high <= budget)
            assert find(estimator, budget).chosen.step_ns <= best * 1.002


def test_budget_below_the_least_tells_the_least(estimator: Estimator) -> None:
    with pytest.raises(BudgetError, match=r"no checkpointing fits 1.00 MiB: the least is .* MiB"):
        find(estimator, 1 << 20)


def test_predicted_recompute_is_that_of_the_simulated_run(estimator: Estimator) -> None:
    """The flops of a step under a plan are those without it and those that it recomputes."""
    without = estimator.step_of(estimator.estimate(Plan(), DEVICE)).time(L4)
    for ac in ("full", "selective", "attention", "full:0-1,selective:3"):
        step = estimator.step_of(estimator.estimate(Plan(ac=ac), DEVICE)).time(L4)
        assert step["flops"] - without["flops"] == step["recompute_flops"]
        assert (step["recompute_flops"] > 0) == (ac != "selective")


def test_random_models_stay_below_random_budgets() -> None:
    choose = random.Random(1)
    for _ in range(4):
        hiddens = [choose.choice((256, 1024, 3000)) for _ in range(choose.randint(2, 5))]
        contract = make_contract(128, hiddens, choose.randint(1, 8), choose.choice((128, 500)))
        with Estimator(contract) as estimator:
            least, most = bounds_of(estimator)
            for _ in range(2):
                budget = choose.randint(least, most)
                found = find(estimator, budget)
                with Estimator(contract) as again:
                    plan = Plan(ac=found.chosen.estimate.plan.ac)
                    assert again.estimate(plan, DEVICE).high_bytes <= budget


def make_parts_contract() -> Contract:
    """Two modules of different classes, so no list of blocks."""

    def build(settings: object) -> nn.Module:
        encoder = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256))
        whole = nn.ModuleDict({"encoder": encoder, "decoder": Block(256, 2048)})
        whole.forward = lambda x: whole["decoder"](whole["encoder"](x))  # type: ignore[method-assign]
        return whole

    return Contract(
        name="parts",
        build_model=build,
        make_inputs=lambda settings: torch.randn(8, 512, 256),
        compute_loss=lambda model, x: model(x).square().mean(),
    )


def test_model_without_blocks_is_planned_by_module() -> None:
    with Estimator(make_parts_contract()) as estimator:
        least, most = bounds_of(estimator)
        found = find(estimator, (least + most) // 2)
    assert found.blocks == ("encoder", "decoder")
    assert found.chosen.estimate.high_bytes <= found.budget_bytes
    assert set(found.chosen.kinds) != {"none"}
    text = render_plan(found)
    assert "no blocks found (define blocks(model)), its 2 modules with submodules are" in text


def test_model_without_modules_to_checkpoint_is_reported() -> None:
    contract = Contract(
        name="layer",
        build_model=lambda settings: nn.Linear(8, 8),
        make_inputs=lambda settings: torch.randn(2, 8),
        compute_loss=lambda model, x: model(x).sum(),
    )
    with (
        Estimator(contract) as estimator,
        pytest.raises(ValueError, match="layer has no list of blocks to checkpoint"),
    ):
        find(estimator, 1 << 30)


def test_text_of_kinds_is_read_back() -> None:
    for kinds in itertools.product(CHECKPOINTING, repeat=4):
        assert Plan(ac=render_ac(kinds)).checkpointing_of(4) == kinds
    assert render_ac(("full", "full", "none", "selective")) == "full:0-1,selective:3"
    assert Plan(ac="every:2").checkpointing_of(5) == ("none", "full", "none", "full", "none")


@pytest.mark.parametrize(
    ("ac", "message"),
    [
        ("half", "invalid ac 'half'"),
        ("full:3-1", "full:3-1 ends before it begins"),
        ("full:0-", "expected none, attention"),
        ("full:0,:", "expected none, attention"),
    ],
)
def test_invalid_kinds_are_reported(ac: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Plan(ac=ac)


def test_block_that_does_not_exist_is_reported() -> None:
    with pytest.raises(ValueError, match=r"there is no block 7 \(expected 0 to 2\)"):
        Plan(ac="full:7").checkpointing_of(3)


def test_command_writes_the_plan(
    model_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["plan", model_file, "--device", "l4", "--set", "batch=64"]
    assert main([*command, "--json", "--write", "plan.json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    written = json.loads((tmp_path / "plan.json").read_text())
    assert answer["chosen"]["fits"]
    assert [row["name"] for row in answer["compared"]] == [
        "none",
        "every 2nd full",
        "attention",
        "selective",
        "full",
    ]
    assert written["blocks"] == answer["blocks"] == {}  # everything fits without checkpointing
    assert main([*command, "--write", "plan.json"]) != 0  # exists


def test_command_reports_a_budget_that_is_too_small(
    model_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", model_file, "--device", "l4", "--budget", "1MiB"]) == 3
    assert "no checkpointing fits 1.00 MiB" in capsys.readouterr().err


def test_command_chooses_the_checkpointing_itself(
    model_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", model_file, "--device", "l4", "--ac", "full"]) == 2
    assert "leave out --ac" in capsys.readouterr().err
    assert main(["plan", model_file]) == 2
    assert "plan needs --device" in capsys.readouterr().err
