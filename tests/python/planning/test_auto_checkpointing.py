# SPDX-License-Identifier: BSD-3-Clause
"""Policies as selective checkpoints of a real model."""

from __future__ import annotations

import pytest
import torch
from tidegauge.auto_sac import (
    SACPolicy,
    apply_auto_sac_policies,
    get_greedy_checkpointing_policy_per_module,
)
from tidegauge.sac_estimator import MSPS, SACEstimator, SACGreedyOrderMeta, SACStats
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode


class Net(nn.Module):
    """Runs its block twice; a call of the block has the ops t, addmm, relu, t, addmm."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.block(self.block(x))
        return y


class ProductsInBackward(TorchDispatchMode):
    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.count += func is torch.ops.aten.addmm.default
        return func(*args, **(kwargs or {}))


def gradients_and_recomputed(policy: list[int] | None) -> tuple[list[torch.Tensor], int]:
    torch.manual_seed(0)
    model = Net()
    if policy is not None:
        apply_auto_sac_policies(model, {"Net.block": SACPolicy(policy)})
    for _ in range(2):
        model.zero_grad()
        loss = model(torch.ones(4, 8)).sum()
        with ProductsInBackward() as products:
            loss.backward()
    return [each.grad for each in model.parameters() if each.grad is not None], products.count


@pytest.mark.parametrize(
    ("policy", "recomputed"),
    [([0, 1, 1, 0, 1], 0), ([0, 1, 0, 0, 0], 2), ([0, 0, 0, 0, 0], 4), ([0], 4), ([], 4)],
)
def test_policy_decides_what_is_recomputed_and_gradients_stay(
    policy: list[int], recomputed: int
) -> None:
    """In each of two calls and two steps. A checkpoint stops once it has what backward needs, so
    the last product may not run again."""
    plain, _ = gradients_and_recomputed(None)
    found, products = gradients_and_recomputed(policy)
    assert products <= recomputed
    assert products > 0 or policy[1:2] == [1]
    assert all(torch.equal(a, b) for a, b in zip(plain, found, strict=True))


class Block(nn.Module):
    """Changes a buffer and a result in place, after the old value was read."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1)
        self.norm = nn.BatchNorm2d(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.conv(x))
        doubled = y * 2
        return (torch.relu_(y) + doubled.sin()).exp().tanh()


@pytest.mark.parametrize("budget", [0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
def test_gradients_under_a_policy_are_those_without(budget: float) -> None:
    def train(policy: SACPolicy | None) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(Block(), Block())
        if policy is not None:
            apply_auto_sac_policies(model, {"Sequential.0": policy, "Sequential.1": policy})
        for _ in range(2):
            model(torch.randn(2, 3, 4, 4)).sum().backward()
        return [each.grad for each in model.parameters() if each.grad is not None]

    estimator = SACEstimator(device="h100-80g")
    with estimator("operator-level-cost-model"):
        Block()(torch.ones(2, 3, 4, 4))
    stats, order = (
        estimator.sac_mod_stats["Block"],
        estimator.sac_mod_greedy_order_meta["Block"],
    )
    policy = get_greedy_checkpointing_policy_per_module(stats, order, budget)
    plain = train(None)
    assert all(torch.equal(a, b) for a, b in zip(plain, train(SACPolicy(policy)), strict=True))


def test_policy_of_an_unknown_module_changes_nothing() -> None:
    model = Net()
    with pytest.raises(ValueError, match=r"cannot checkpoint 'Net.blok': .*'Net.block'"):
        apply_auto_sac_policies(model, {"Net.block": SACPolicy([]), "Net.blok": SACPolicy([])})
    assert type(model.block) is nn.Sequential


def test_greedy_policy_recomputes_in_order_until_the_budget_is_kept() -> None:
    """Ops 1 and 3 stay together; op 0 is a view, op 4 is always stored."""
    stats = SACStats(list("abcde"), [1, 1, 5, 1, 1], [0, 100, 100, 0, 50], [0], [], [], [], False)
    groups = {1: {1, 3}}
    order = SACGreedyOrderMeta(
        {0}, {4}, groups, {}, [MSPS({"b"}, 1, 100, 2, 50.0), MSPS({"c"}, 2, 100, 5, 20.0)]
    )

    def policy(budget: int) -> list[int]:
        return get_greedy_checkpointing_policy_per_module(stats, order, budget / 250)

    assert policy(250) == [0, 1, 1, 1, 1]
    assert policy(249) == policy(150) == [0, 0, 1, 0, 1]
    assert policy(149) == policy(0) == [0, 0, 0, 0, 1]
    with pytest.raises(ValueError, match="between 0 and 1"):
        policy(251)
