# SPDX-License-Identifier: BSD-3-Clause
"""Which ops and modules to recompute: upstream's case, brute force, and the budget itself."""

from __future__ import annotations

import itertools
import random
import sys
from collections import OrderedDict
from typing import Any, cast

import pytest
from llm_graph import llm_info
from tidegauge.ilp_utils import Graph, ModuleInfo, parse_module_info
from tidegauge.planning.linear_program import LinearProgram, Solution
from tidegauge.sac_estimator import SACStats
from tidegauge.sac_ilp import get_optimal_checkpointing_policy_per_module, sac_milp

pytest.importorskip("highspy")
GIB = 2**30
MIB = 2**20


def make_stats(
    ops: list[tuple[str, float, int]],
    views: list[int],
    random_ops: list[int],
    in_place: list[tuple[int, int]],
    force: bool = False,
) -> SACStats:
    names, times, memory = map(list, zip(*ops, strict=True))
    return SACStats(names, times, memory, views, random_ops, [], in_place, force)


EIGHT_OPS = make_stats(
    [
        ("aten.copy_", 5, 0),
        ("aten.add", 5, 100),
        ("aten.div", 8, 100),
        ("aten.mm", 15, 120),
        ("aten.native_dropout", 15, 0),
        ("aten.linear", 9, 100),
        ("aten.t", 1, 0),
        ("aten.relu_", 5, 0),
    ],
    views=[6],
    random_ops=[4],
    in_place=[(0, 0), (7, 5)],
)


# Upstream's figures.
@pytest.mark.parametrize(
    ("budget", "policy"),
    [
        (0, [1, 0, 0, 0, 1, 0, 0, 0]),
        (100, [1, 0, 0, 0, 1, 1, 0, 1]),
        (120, [1, 0, 0, 1, 1, 0, 0, 0]),
        (200, [1, 0, 1, 0, 1, 1, 0, 1]),
        (220, [1, 0, 0, 1, 1, 1, 0, 1]),
        (320, [1, 0, 1, 1, 1, 1, 0, 1]),
        (420, [1, 1, 1, 1, 1, 1, 0, 1]),
    ],
)
def test_policy_of_eight_ops(budget: int, policy: list[int]) -> None:
    assert get_optimal_checkpointing_policy_per_module(EIGHT_OPS, budget / 420) == policy


@pytest.mark.parametrize("budget", [-0.1, 1.1, float("nan")])
def test_budget_of_a_policy_is_a_share(budget: float) -> None:
    with pytest.raises(ValueError, match="must be a float between 0 and 1"):
        get_optimal_checkpointing_policy_per_module(EIGHT_OPS, budget)


def test_policy_is_empty_if_the_budget_is_below_what_must_be_saved() -> None:
    stats = make_stats([("rand", 1, 100), ("mm", 1, 100)], [], [0], [], force=True)
    assert get_optimal_checkpointing_policy_per_module(stats, 0.4) == []
    assert get_optimal_checkpointing_policy_per_module(stats, 0.5) == [1, 0]


def is_allowed(stats: SACStats, policy: tuple[int, ...], budget: int) -> bool:
    chance = {policy[op] for op in stats.rand_ops}
    return (
        not any(policy[op] for op in stats.view_like_ops)
        and (chance <= {1} if stats.force_store_random else len(chance) <= 1)
        and all(policy[op] == (policy[by] if op != by else 1) for op, by in stats.inplace_ops)
        and sum(itertools.compress(stats.memory, policy)) <= budget
    )


@pytest.mark.parametrize("seed", range(40))
def test_no_policy_recomputes_less(seed: int) -> None:
    draw = random.Random(seed)
    ops = [(f"op{i}", draw.randrange(1, 50), draw.randrange(1 << 32)) for i in range(9)]
    stats = make_stats(ops, [1], [3, 7], [(2, 2), (5, 4)], force=seed % 2 == 0)
    share = draw.random()
    budget = -int(-share * sum(stats.memory) // 1)
    allowed = [
        policy
        for policy in itertools.product((0, 1), repeat=9)
        if is_allowed(stats, policy, budget)
    ]
    found = tuple(get_optimal_checkpointing_policy_per_module(stats, share))
    if not allowed:
        assert found == ()
        return
    assert found in allowed
    saved = [sum(itertools.compress(stats.runtimes, policy)) for policy in (found, *allowed)]
    assert saved[0] == max(saved)


def chain(blocks: int, opt_total: int = 0, seed: int = 0) -> Graph:
    """Blocks that leave about 100 MiB of activations each, in a model with 64 MiB of parameters."""
    draw = random.Random(seed)
    rows: list[dict[str, Any]] = []
    total = 0
    for i in range(blocks):
        saved = draw.randrange(80, 120) * MIB if seed else 100 * MIB
        total += saved + MIB
        bend = draw.uniform(0.2, 0.8) if seed else 0.5
        rows.append(
            {
                "fqn": f"Net.{i}",
                "param_per_module": 64 * MIB // blocks,
                "grad_per_module": 64 * MIB // blocks,
                "grad_total": (blocks - 1 - i) * 64 * MIB // blocks,
                "act_fw_per_module": saved,
                "act_grad_per_module": 8 * MIB,
                "act_total": total,
                "output_per_module": MIB,
                "is_leaf": False,
                "sac_runtime": 10.0,
                "sac_memory": saved * 5 // 4,
                "n_segments": 2,
                "slopes": [bend, 2 - bend],
                "intercepts": [0.0, bend - 1],
                "breakpoints": [0.0, 0.5, 1.0],
                "tradeoff_curve": OrderedDict(),
                "opt_total": opt_total,
            }
        )
    root = {
        **rows[0],
        "fqn": "Net",
        "param_per_module": 64 * MIB,
        "grad_per_module": 64 * MIB,
        "grad_total": 0,
        "act_fw_per_module": total,
        "act_total": total,
        "is_leaf": True,
    }
    names = [row["fqn"] for row in rows]
    order = {"fw_pre_order": ["Net", *names], "fw_post_order": [*names, "Net"]}
    return parse_module_info(cast(ModuleInfo, {"mod_order": order, "mod_stats": [root, *rows]}))


def peak_and_time(graph: Graph, plan: dict[str, float], world: int = 1) -> tuple[float, float]:
    """Of a plan for a chain, without the program."""
    peak, time, saved = 0.0, 0.0, 0.0
    root, *blocks = graph.nodes
    for node in (*blocks, root):
        sharded = root["param_per_module"] + node["grad_total"] + node.get("opt_total", 0)
        peak = max(peak, sharded / world + node["act_total"] + node["act_grad_per_module"] - saved)
        if node["fqn"] in plan:
            share = plan[node["fqn"]]
            saved += node["act_fw_per_module"] - node["sac_memory"] * (1 - share)
            lines = zip(node["slopes"], node["intercepts"], strict=True)
            time += node["sac_runtime"] * max(slope * share + start for slope, start in lines)
    return peak, time


@pytest.mark.parametrize("seed", range(1, 9))
def test_plan_keeps_the_budget_and_no_other_is_shorter(seed: int) -> None:
    graph = chain(4, seed=seed)
    most, _ = peak_and_time(graph, {})
    budget = most * random.Random(seed).uniform(0.55, 0.95)
    plan, time, peak = sac_milp(graph, budget / GIB)
    assert (peak, time) == pytest.approx(peak_and_time(graph, plan), rel=1e-4)
    assert peak <= budget
    shares = [None, 0.2, 0.4, 0.6, 0.8, 1.0]
    names = [node["fqn"] for node in graph.nodes[1:]]
    for choice in itertools.product(shares, repeat=4):
        other = {
            name: share for name, share in zip(names, choice, strict=True) if share is not None
        }
        other_peak, other_time = peak_and_time(graph, other)
        assert other_time >= time - 1e-3 or other_peak > budget


def test_peak_is_that_of_the_plan() -> None:
    """Upstream returns the budget whenever it finds a plan."""
    graph = chain(4)
    peak, _ = peak_and_time(graph, {})
    plan, time, found = sac_milp(graph, 2 * peak / GIB)
    assert (plan, time, found) == ({}, 0, int(peak))
    upstream = pytest.importorskip("torch.distributed._tools.sac_ilp").sac_milp(
        graph, 2 * peak / GIB
    )
    assert upstream[0] == {}
    assert upstream[2] == pytest.approx(2 * peak, rel=1e-6)


def test_optimizer_states_need_memory() -> None:
    """Upstream has no place for them, so its plan exceeds the budget by their bytes."""
    graph = chain(4, opt_total=128 * MIB)
    peak, _ = peak_and_time(graph, {})
    budget = peak - 64 * MIB
    plan, _, found = sac_milp(graph, budget / GIB)
    assert plan
    assert found <= budget
    upstream = pytest.importorskip("torch.distributed._tools.sac_ilp").sac_milp(graph, budget / GIB)
    assert upstream[0] == {}
    assert peak_and_time(graph, upstream[0])[0] == budget + 64 * MIB


def test_search_that_ran_out_of_time_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Upstream returns what it has as if it was solved."""
    solve = LinearProgram.solve

    def stop_early(program: LinearProgram, **settings: float) -> Solution | None:
        solution = solve(program, **settings)
        return solution and Solution(solution.values, 0.25)

    monkeypatch.setattr(LinearProgram, "solve", stop_early)
    graph = chain(4)
    sac_milp(graph, (peak_and_time(graph, {})[0] - 50 * MIB) / GIB)
    assert "recomputation may be 25.0 % longer than necessary" in caplog.text


def test_budget_that_no_plan_keeps() -> None:
    assert sac_milp(chain(4), 0.05) == ({}, 0, -1)


def test_working_memory_of_a_recomputation_counts() -> None:
    graph = chain(2)
    peak, _ = peak_and_time(graph, {})
    for node in graph.nodes:
        node["recompute_work"] = 10 * MIB
    plan, _, found = sac_milp(graph, (peak - 50 * MIB) / GIB)
    without = peak_and_time(graph, plan)[0]
    assert without <= found <= peak - 50 * MIB
    block = graph.nodes[1]
    alone = graph.nodes[0]["param_per_module"] + block["grad_total"] + block["act_total"]
    assert found >= alone + block["act_grad_per_module"] + 10 * MIB


def test_gathered_units_need_memory() -> None:
    """The root's own parameters and those of the running block are whole, and so are their
    gradients; those of the next block are gathered ahead."""
    graph = chain(4)
    sharded, _, without = sac_milp(graph, 4, world_size=4)
    assert sharded == {}
    units = [node["fqn"] for node in graph.nodes[1:]]
    _, _, gathered = sac_milp(graph, 4, world_size=4, fsdp_units=units)
    assert gathered == without + 3 * 16 * MIB


def test_only_given_units_are_checkpointed_and_none_around_a_unit_of_fsdp() -> None:
    graph = chain(4)
    peak, _ = peak_and_time(graph, {})
    plan, _, _ = sac_milp(graph, (peak - 50 * MIB) / GIB, ac_units=["Net.2"])
    assert set(plan) == {"Net.2"}
    assert sac_milp(graph, (peak - 50 * MIB) / GIB, fsdp_units=["Net.0.inner"])[0].keys() <= {
        "Net.1",
        "Net.2",
        "Net.3",
    }


def test_missing_solver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "highspy", None)
    with pytest.raises(ImportError, match="run `pip install highspy`"):
        sac_milp(chain(2), 1.0)


def test_nested_modules_are_not_both_checkpointed() -> None:
    graph = parse_module_info(llm_info())
    block = chain(1).nodes[1]
    for node in graph.nodes:
        for name in ("slopes", "intercepts", "sac_runtime", "is_leaf"):
            node[name] = block[name]  # type: ignore[literal-required]
        node["sac_memory"] = node["act_fw_per_module"]
    graph.nodes[0]["is_leaf"] = graph.nodes[-1]["is_leaf"] = True
    plan, _, peak = sac_milp(graph, 3.6, world_size=4)
    assert plan
    assert peak <= 3.6 * GIB
    for name, other in itertools.permutations(plan, 2):
        assert not name.startswith(f"{other}.")
