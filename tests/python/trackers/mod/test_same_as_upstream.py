# SPDX-License-Identifier: BSD-3-Clause
"""Where upstream is right, we give the same answer at every operator and user hook."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import torch
from models import (
    ByKeyword,
    Checkpointed,
    CheckpointedFunction,
    Net,
    Residual,
    Shared,
    Tied,
    Twice,
    inputs,
    train,
)
from observe import Record, ours, upstream
from torch import nn


def forward_without_grad() -> nn.Module:
    model = Net()
    with torch.no_grad():
        model(inputs())
    return model


def frozen_weights() -> nn.Module:
    model = Residual()
    model.left.requires_grad_(False)
    return train(model)


def keyword_only_without_grad() -> nn.Module:
    model = ByKeyword()
    model(x=inputs(requires_grad=False)).sum().backward()
    return model


def two_steps() -> nn.Module:
    return train(train(Residual()))


def recurrent() -> nn.Module:
    model = nn.LSTM(4, 4, num_layers=2, bidirectional=True)
    output, _ = model(torch.ones(3, 2, 4, requires_grad=True))
    output.sum().backward()
    return model


def attention() -> nn.Module:
    model = nn.MultiheadAttention(4, 2)
    x = torch.ones(3, 2, 4, requires_grad=True)
    model(x, x, x)[0].sum().backward()
    return model


SCENARIOS: dict[str, Callable[[], nn.Module]] = {
    "net": lambda: train(Net()),
    "net_with_input_that_needs_no_grad": lambda: train(Net(), inputs(requires_grad=False)),
    "residual": lambda: train(Residual()),
    "residual_with_input_that_needs_no_grad": lambda: train(Residual(), inputs(False)),
    "tied_weights": lambda: train(Tied(), torch.tensor([1, 2])),
    "no_grad": forward_without_grad,
    "frozen_weights": frozen_weights,
    "keyword_only_without_grad": keyword_only_without_grad,
    "sequential": lambda: train(nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))),
    "batch_norm": lambda: train(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))),
    "convolution": lambda: train(nn.Conv1d(2, 3, 2), torch.ones(1, 2, 4, requires_grad=True)),
    "recurrent": recurrent,
    "recurrent_cell": lambda: train(nn.GRUCell(4, 4)),
    "attention": attention,
    "two_steps": two_steps,
    "checkpoint": lambda: train(Checkpointed(use_reentrant=False)),
    "checkpoint_without_early_stop": lambda: train(Checkpointed(False, early_stop=False)),
    "checkpoint_nested": lambda: train(Checkpointed(False, Checkpointed(False))),
    "checkpoint_of_function": lambda: train(CheckpointedFunction(use_reentrant=False)),
}


def hooks_of_one_tensor(record: Record) -> Counter[str]:
    """Upstream runs inner before outer hooks if both share an output, so compare as a multiset."""
    return Counter(record.hooks)


@pytest.mark.parametrize("name", SCENARIOS)
def test_operators_and_hooks_agree(name: str) -> None:
    theirs, mine = upstream(SCENARIOS[name]), ours(SCENARIOS[name])
    assert len(mine.forward) > 0
    assert mine.forward == theirs.forward
    assert mine.backward == theirs.backward
    assert hooks_of_one_tensor(mine) == hooks_of_one_tensor(theirs)
    assert mine.at_end == theirs.at_end == "-"


@pytest.mark.parametrize("model", [Twice, Shared])
def test_module_used_several_times_agrees_except_for_the_last_accumulation(
    model: type[nn.Module],
) -> None:
    theirs, mine = upstream(lambda: train(model())), ours(lambda: train(model()))
    assert mine.forward == theirs.forward
    assert mine.backward[:-1] == theirs.backward[:-1]
    assert mine.hooks == theirs.hooks


@pytest.mark.parametrize("name", SCENARIOS)
def test_names_agree(name: str) -> None:
    """`hooks` contains the name of each called module."""
    theirs, mine = upstream(SCENARIOS[name]), ours(SCENARIOS[name])
    assert {line.split()[1] for line in mine.hooks} == {line.split()[1] for line in theirs.hooks}


def test_order_of_hooks_equals_upstreams_where_defined() -> None:
    expected = [
        "pre_fw Residual",
        "pre_fw Residual.left",
        "post_fw Residual.left",
        "pre_fw Residual.right",
        "post_fw Residual.right",
        "post_fw Residual",
        "pre_bw Residual",
        "pre_bw Residual.right",
        "post_bw Residual.right",
        "pre_bw Residual.left",
        "post_bw Residual.left",
        "post_bw Residual",
    ]
    assert upstream(lambda: train(Residual())).hooks == expected
    assert ours(lambda: train(Residual())).hooks == expected


def test_recompute_fires_forward_hooks_in_backward() -> None:
    record = ours(lambda: train(Checkpointed(use_reentrant=False)))
    recomputed = [line for line in record.hooks if line.startswith("re-")]
    assert recomputed == [
        "re-pre_fw Checkpointed.body",
        "re-pre_fw Checkpointed.body.fc1",
        "re-post_fw Checkpointed.body.fc1",
        "re-pre_fw Checkpointed.body.act",
        "re-post_fw Checkpointed.body.act",
        "re-pre_fw Checkpointed.body.fc2",
        "re-post_fw Checkpointed.body.fc2",
        "re-post_fw Checkpointed.body",
    ]
