# SPDX-License-Identifier: BSD-3-Clause
"""Micro-batch, accumulation, resharding and offload chosen together with the checkpointing."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterator

import pytest
import torch
from tidegauge.allocator import find_device
from tidegauge.cli.main import main
from tidegauge.estimation import Contract, Estimator
from tidegauge.estimation.block_kinds import CHECKPOINTING, render_ac
from tidegauge.estimation.plan import Plan
from tidegauge.planning.configurations import Choice, find_configuration, list_variants
from tidegauge.planning.planner import BudgetError
from tidegauge.planning.speed import Speed
from tidegauge.planning.text import render_plan
from torch import nn

DEVICE = find_device("l4")
Capture = pytest.CaptureFixture[str]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(256, 2048)
        self.down = nn.Linear(2048, 256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(nn.functional.gelu(self.up(x)))


CONTRACT = Contract(
    name="model",
    build_model=lambda settings: nn.Sequential(nn.Sequential(Block(), Block())),
    make_inputs=lambda settings: torch.randn(settings.batch, 1024, 256),
    compute_loss=lambda model, x: model(x).square().mean(),
    settings={"batch": 1},
)
PLAN = Plan(fsdp=2, mp="bf16/fp32")
VARIANTS = list_variants(CONTRACT, PLAN, ("batch", "reshard", "offload"), 4)


@pytest.fixture(scope="module")
def estimator() -> Iterator[Estimator]:
    with Estimator(CONTRACT, rank="0") as made:
        yield made


@pytest.fixture(scope="module")
def every(estimator: Estimator) -> list[tuple[int, float]]:
    """The bytes and the time of all variants with all choices of checkpointing."""
    found = []
    for plan, kinds in itertools.product(VARIANTS, itertools.product(CHECKPOINTING, repeat=2)):
        estimate = estimator.estimate(plan.change(ac=render_ac(kinds)), DEVICE)
        time = estimator.step_of(estimate).time(Speed("l4"))["total_ns"]
        found.append((estimate.high_bytes, time))
    return found


def find(estimator: Estimator, budget: int) -> Choice:
    return find_configuration(estimator, VARIANTS, DEVICE, budget_bytes=budget)


def test_variants_have_the_global_batch() -> None:
    assert len(VARIANTS) == 2 * 2 * 2
    for plan in VARIANTS:
        assert dict(plan.settings)["batch"] * plan.accumulate * 2 == 4
    assert {(plan.reshard, plan.offload) for plan in VARIANTS} == {
        *itertools.product(("auto", "no"), (False, True))
    }
    assert list_variants(CONTRACT, PLAN, ("ac",), None) == [PLAN]


def test_choice_is_the_fastest_of_all_combinations(
    estimator: Estimator, every: list[tuple[int, float]]
) -> None:
    """8 variants x 16 choices of checkpointing, each simulated."""
    needs = sorted({high for high, _ in every})
    for budget in [*needs[:: max(len(needs) // 8, 1)], needs[-1]]:
        found = find(estimator, budget).best.chosen
        assert found.estimate.high_bytes <= budget
        best = min(time for high, time in every if high <= budget)
        assert found.step_ns <= best * 1.002


def test_more_budget_is_never_slower(estimator: Estimator, every: list[tuple[int, float]]) -> None:
    low, high = min(every)[0], max(every)[0]
    times = [
        find(estimator, low + (high - low) * part // 6).best.chosen.step_ns for part in range(7)
    ]
    assert times == sorted(times, reverse=True)
    assert times[0] > times[-1]


def test_variants_that_are_left_out_are_slower(estimator: Estimator) -> None:
    found = find(estimator, DEVICE.memory_bytes)
    assert sum(each.result is found.best for each in found.variants) == 1
    for each in found.variants:
        if each.is_slower:
            assert each.fastest.step_ns >= found.best.chosen.step_ns


def test_budget_that_nothing_fits_tells_the_least(
    estimator: Estimator, every: list[tuple[int, float]]
) -> None:
    with pytest.raises(BudgetError) as error:
        find(estimator, 1 << 20)
    assert error.value.least_bytes == min(every)[0]


@pytest.mark.parametrize(
    ("plan", "choices", "global_batch", "message"),
    [
        (PLAN, ("batch",), None, "batch in --try and --global-batch need each other"),
        (PLAN, ("ac",), 8, "batch in --try and --global-batch need each other"),
        (PLAN, ("batch",), 9, "the global batch 9 cannot be split over 2 ranks"),
        (PLAN, ("batch",), 1, "the global batch 1 cannot be split over 2 ranks"),
        (Plan(), ("reshard",), None, "reshard, wrap and offload in --try require fsdp or hsdp"),
        (PLAN, ("batch", "reshard", "offload"), 2 * 83160, "at most 64 are simulated"),
    ],
)
def test_choices_that_do_not_suit_are_reported(
    plan: Plan, choices: tuple[str, ...], global_batch: int | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        list_variants(CONTRACT, plan, choices, global_batch)


def test_target_without_a_batch_is_reported() -> None:
    contract = Contract(
        "m", CONTRACT.build_model, CONTRACT.make_inputs, CONTRACT.compute_loss, {"size": 3}
    )
    with pytest.raises(ValueError, match="m has no setting 'batch'"):
        list_variants(contract, PLAN, ("batch",), 8)


def test_command_lists_what_it_tried(model_file: str, capsys: Capture) -> None:
    command = ["plan", model_file, "--device", "l4", "--fsdp", "2", "--try", "batch,reshard"]
    command += ["--global-batch", "8"]
    assert main(command) == 0
    text = capsys.readouterr().out
    assert "batch 4 x 1" in text
    assert text.count("  chosen\n") == 1
    assert max(map(len, text.splitlines())) <= 80
    assert main([*command, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [(each["batch"], each["accumulate"]) for each in answer["tried"]].count((2, 2)) == 2
    assert answer["chosen"]["fits"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--try", "magic"],
            "invalid try 'magic' (expected some of ac,batch,reshard,wrap,offload)",
        ),
        (["--try", ""], "invalid try ''"),
        (["--global-batch", "8"], "need each other"),
        (["--try", "offload"], "require fsdp or hsdp"),
    ],
)
def test_wrong_use_is_reported(
    model_file: str, arguments: list[str], message: str, capsys: Capture
) -> None:
    assert main(["plan", model_file, "--device", "l4", *arguments]) == 2
    assert message in capsys.readouterr().err


EIGHT = Contract(
    name="eight",
    build_model=lambda settings: nn.Sequential(nn.Sequential(*(Block() for _ in range(8)))),
    make_inputs=lambda settings: torch.randn(4, 256),
    compute_loss=lambda model, x: model(x).square().mean(),
)


def test_wrapped_blocks_are_gathered_together() -> None:
    """Each block is gathered for forward and for backward, but the last unit stays gathered."""
    block_bytes = sum(each.numel() for each in Block().parameters()) * 2  # bfloat16
    with Estimator(EIGHT, rank="0") as estimator:
        for wrap in (1, 2, 4):
            found = estimator.estimate(PLAN.change(ac="full", wrap=wrap), DEVICE)
            step = estimator.step_of(found)
            calls = step.log.calls()
            sizes = [
                calls[each.call].payload_bytes
                for each in step.slices(Speed("l4"))
                if "allgather" in calls[each.call].op
            ]
            assert set(sizes) == {wrap * block_bytes}
            assert len(sizes) in (2 * 8 // wrap, 2 * 8 // wrap - 1)
            assert f"{8 // wrap} FSDP2 units" in found.layout  # the root has no parameters


def test_wrapping_is_chosen_among_all_combinations() -> None:
    variants = list_variants(EIGHT, PLAN, ("wrap",), None)
    assert [each.wrap for each in variants] == [1, 2, 4]
    with Estimator(EIGHT, rank="0") as estimator:
        found = find_configuration(estimator, variants, DEVICE)
        times = {
            plan.wrap: estimator.step_of(estimator.estimate(plan, DEVICE)).time(Speed("l4"))
            for plan in variants
        }
    fastest = min(time["total_ns"] for time in times.values())
    assert found.best.chosen.step_ns == fastest
    assert found.best.chosen.estimate.plan.wrap > 1  # the host launches fewer kernels
    assert f"wrap {found.best.chosen.estimate.plan.wrap}" in render_plan(found.best, found.variants)


def test_wrapping_that_is_impossible_is_reported() -> None:
    own = Contract("own", EIGHT.build_model, EIGHT.make_inputs, EIGHT.compute_loss)
    own = dataclasses.replace(own, shard=lambda model, shard: shard(model))
    with pytest.raises(ValueError, match=r"wrap in --try has no effect: own defines shard"):
        list_variants(own, PLAN, ("wrap",), None)
    with (
        Estimator(own, rank="0") as estimator,
        pytest.raises(ValueError, match=r"wrap=2 has no effect: own defines shard"),
    ):
        estimator.estimate(PLAN.change(wrap=2), DEVICE)
    with pytest.raises(ValueError, match="wrap requires fsdp or hsdp"):
        Plan(wrap=2)
    with pytest.raises(ValueError, match="invalid wrap=0"):
        Plan(fsdp=2, wrap=0)
