# SPDX-License-Identifier: BSD-3-Clause
"""Checkpointing that keeps named ops, also in one submodule only, and the search for them."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import tidegauge
import torch
from planned_models import Gated, Residual, Stack, make_contract, mlp
from tidegauge import _C
from tidegauge.allocator import find_device
from tidegauge.estimation import Estimator, ModelError
from tidegauge.estimation.block_kinds import render_ac
from tidegauge.estimation.plan import Plan
from tidegauge.planning.block_checkpointing import _names
from tidegauge.planning.block_model import BlockModel
from tidegauge.planning.kept_sets import list_kept_sets
from tidegauge.planning.plan_file import AppliedPlan, load, make_applied
from tidegauge.planning.planner import find_plan
from tidegauge.planning.speed import Speed
from torch import nn

L4 = find_device("l4")
_OP, _RECOMPUTE = 0, 2


def recomputed(model: nn.Module) -> Counter[str]:
    log = _C.OpLog()
    with tidegauge.mem_tracker.MemTracker():
        log.start()
        model(torch.ones(4, 8, 64)).square().sum().backward()
        log.stop()
    calls = log.calls()
    rows = log.entries(0, log.position)
    return Counter(
        calls[number].op for kind, number, facts, _ in rows if kind == _OP and facts & _RECOMPUTE
    )


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return Stack(Residual(Gated()), Residual(Gated()))


def run_code(plan: AppliedPlan, model: nn.Module) -> nn.Module:
    space: dict[str, Any] = {}
    exec(plan.to_code(), space)
    made: nn.Module = space["checkpoint_blocks"](model)
    return made


@pytest.mark.parametrize("apply", [AppliedPlan.apply, run_code], ids=["apply", "code"])
def test_only_the_ops_of_the_submodule_are_kept(apply: Any, tmp_path: Path) -> None:
    """Of gate and up, which run the same op, one is recomputed: down is not needed again."""
    names, count = ("blocks.0",), {}
    for kind in ("full", "keep=addmm@body.0.gate", "keep=addmm", "keep=addmm@body.0.gate/silu"):
        plan = make_applied(names, (kind,), {})
        (tmp_path / "plan.json").write_text(plan.to_json())
        count[kind] = recomputed(apply(load(tmp_path / "plan.json"), make_model()))
    of = {kind: (found["aten::addmm"], found["aten::silu"]) for kind, found in count.items()}
    assert of["full"] == (2, 1)
    assert of["keep=addmm@body.0.gate"] == (1, 1)
    assert of["keep=addmm"] == (0, 1)
    assert of["keep=addmm@body.0.gate/silu"] == (1, 0)
    assert _names() == []


def test_gradients_are_bitwise_equal() -> None:
    gradients = []
    for kind in ("none", "keep=addmm@body.0.up/native_layer_norm"):
        model = make_applied(("blocks.0", "blocks.1"), (kind, kind), {}).apply(make_model())
        model(torch.ones(4, 8, 64)).square().sum().backward()
        gradients.append([each.grad for each in model.parameters()])
    for one, other in zip(*gradients, strict=True):
        assert one is not None
        assert other is not None
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"blocks.0": ("addmm@body.1",)}, "a module 'blocks.0.body.1', which this Stack does not"),
        ({"blocks.0": ("no_such@body.0",)}, "an op 'no_such', which this torch does not have"),
    ],
)
def test_unknown_submodule_is_reported(plan: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AppliedPlan(plan, {}).apply(make_model())


def test_text_of_kept_ops_is_read_back() -> None:
    kinds = ("keep=mm@a.b/bmm", "keep=mm@a.b/bmm", "none", "full", "keep=silu")
    text = "keep=mm@a.b/bmm:0-1,full:3,keep=silu:4"
    assert render_ac(kinds) == text
    assert Plan(ac=text).checkpointing_of(5) == kinds
    assert Plan(ac="keep=mm").checkpointing_of(2) == ("keep=mm",) * 2
    assert Plan(ac="keep=mm").describe() == "checkpointing keep=mm"
    for wrong in ("keep=", "keep=mm@", "keep=@a", "keep=mm/", "keep=a b", "keep=mm@a:0-x"):
        with pytest.raises(ValueError, match="invalid ac"):
            Plan(ac=wrong)


@pytest.mark.parametrize("ac", ["keep=no_such_op", "keep=addmm@nowhere"])
def test_op_or_module_that_does_not_exist_is_reported(ac: str) -> None:
    with (
        Estimator(make_contract("mlp")) as estimator,
        pytest.raises((ValueError, ModelError), match=r"no op 'no_such_op'|no module 'nowhere'"),
    ):
        estimator.estimate(Plan(ac=ac), L4)


def test_sets_are_those_that_save_most_time_for_their_bytes() -> None:
    """Of all sets of ops of a block, none of at most as many bytes recomputes less."""
    speed = Speed("l4")
    with Estimator(make_contract("llama")) as estimator:
        full = estimator.step_of(estimator.estimate(Plan(ac="full"), L4))
        sets = list_kept_sets(full, speed, 3)
        assert len(sets) == 3
        figures = {}
        for kinds in (*sets, *((ac,) * 3 for ac in ("full", "attention", "selective"))):
            step = estimator.step_of(estimator.estimate(Plan(ac=render_ac(kinds)), L4))
            kept = step.blocks[1].before_bytes - step.blocks[0].before_bytes
            figures[kinds] = kept, step.recompute_ns(step.blocks[0], speed)
    full_bytes, full_ns = figures[("full",) * 3]
    rates = [(full_ns - ns) / (kept - full_bytes) for kept, ns in (figures[each] for each in sets)]
    assert rates == sorted(rates, reverse=True)
    sizes = [figures[each][0] for each in sets]
    assert sizes == sorted(sizes)


def test_kept_ops_make_plans_faster() -> None:
    """Than any plan of the four named kinds, all of which are simulated here."""
    with Estimator(make_contract("mlp")) as estimator:
        highs = [estimator.estimate(Plan(ac=ac), L4).high_bytes for ac in ("full", "none")]
        budget = min(highs) + (max(highs) - min(highs)) * 3 // 5
        found = find_plan(estimator, Plan(), L4, budget_bytes=budget)
        named = []
        for kinds in itertools.product(("none", "attention", "selective", "full"), repeat=4):
            estimate = estimator.estimate(Plan(ac=render_ac(kinds)), L4)
            if estimate.high_bytes <= budget:
                named.append(estimator.step_of(estimate).time(Speed("l4"))["total_ns"])
    assert found.chosen.step_ns < min(named)
    assert found.chosen.estimate.high_bytes <= budget
    assert any(kind.startswith("keep=") for kind in found.chosen.kinds)


def is_regular(kinds: tuple[str, ...]) -> bool:
    return len([*itertools.groupby(kinds)]) == len(set(kinds))


@pytest.mark.parametrize("seed", range(4))
def test_plans_are_regular_unless_irregular_ones_gain_more_than_a_percent(seed: int) -> None:
    choose = random.Random(seed)
    count = choose.randint(3, 6)
    contract = make_contract("mlp")
    blocks = tidegauge.estimation.Contract(
        "equal",
        lambda settings: Stack(*(mlp(256) for _ in range(count))),
        contract.make_inputs,
        contract.compute_loss,
    )
    with Estimator(blocks) as estimator:
        highs = [estimator.estimate(Plan(ac=ac), L4).high_bytes for ac in ("full", "none")]
        for _ in range(3):
            budget = choose.randint(min(highs), max(highs))
            plain = find_plan(estimator, Plan(), L4, budget_bytes=budget)
            other = find_plan(estimator, Plan(), L4, budget_bytes=budget, irregular=True)
            assert is_regular(plain.chosen.kinds) or plain.chosen.name == "every 2nd full"
            if other.chosen.kinds != plain.chosen.kinds:
                assert other.chosen.step_ns < 0.99 * plain.chosen.step_ns
            assert other.chosen.estimate.high_bytes <= budget


def test_front_of_a_model_with_equal_blocks_is_regular() -> None:
    with Estimator(make_contract("mlp")) as estimator:
        runs = []
        for ac in ("none", "full", "selective"):
            estimate = estimator.estimate(Plan(ac=ac), L4)
            runs.append(((ac,) * 4, estimate, estimator.step_of(estimate)))
        regular, every, gap_ns = BlockModel(runs, Speed("l4")).find_front(1 << 40)
    assert gap_ns == 0
    assert all(is_regular(each.kinds) for each in regular)
    assert [each.time_ns for each in regular] == sorted(each.time_ns for each in regular)
    best = {each.time_ns: each.peak_bytes for each in every}
    for each in regular:  # never better than the exact front
        assert each.peak_bytes >= min(p for t, p in best.items() if t <= each.time_ns)
