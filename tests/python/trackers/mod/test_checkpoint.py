# SPDX-License-Identifier: BSD-3-Clause
"""Recomputed modules: names, hooks and `is_bw`, for each kind of torch.utils.checkpoint."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest
import tidegauge
import torch
from models import Calls, Checkpointed, CheckpointedFunction, Net, inputs, train
from observe import differences, names, ours, upstream
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
    set_checkpoint_early_stop,
)


def backward_hooks(lines: list[str]) -> list[str]:
    return [line for line in lines if not line.startswith(("pre_fw", "post_fw"))]


def test_reentrant_backward_belongs_to_the_recomputed_modules() -> None:
    theirs = upstream(lambda: train(Checkpointed(use_reentrant=True)))
    mine = ours(lambda: train(Checkpointed(use_reentrant=True)))
    assert mine.forward == theirs.forward
    root = "Checkpointed"
    fc2 = (f"{root}", f"{root} {root}.body {root}.body.fc2")
    act = (f"{root}", f"{root} {root}.body {root}.body.act")
    fc1 = (f"{root}", f"{root} {root}.body {root}.body.fc1")
    expected = [("mm", fc2), ("mm", fc2), ("sum", fc2), ("threshold_backward", act)]
    expected += [("mm", fc1), ("mm", fc1), ("sum", fc1)]
    assert differences(theirs.backward, mine.backward) == [
        (f"{op}: {wrong}", f"{op}: {right}") for op, (wrong, right) in expected
    ]


def test_reentrant_modules_have_their_backward_hooks() -> None:
    theirs = upstream(lambda: train(Checkpointed(use_reentrant=True)))
    mine = ours(lambda: train(Checkpointed(use_reentrant=True)))
    recompute = [
        "re-pre_fw Checkpointed.body",
        "re-pre_fw Checkpointed.body.fc1",
        "re-post_fw Checkpointed.body.fc1",
        "re-pre_fw Checkpointed.body.act",
        "re-post_fw Checkpointed.body.act",
        "re-pre_fw Checkpointed.body.fc2",
        "re-post_fw Checkpointed.body.fc2",
        "re-post_fw Checkpointed.body",
    ]
    begin = ["pre_bw Checkpointed", "pre_bw Checkpointed.head", "post_bw Checkpointed.head"]
    assert backward_hooks(theirs.hooks) == [
        *begin,
        *recompute,
        "post_bw Checkpointed",
        "post_bw Checkpointed.body",  # for the forward without grad, at the very end
        "post_bw Checkpointed.body.fc1",
        "post_bw Checkpointed.body.fc2",
        "post_bw Checkpointed.body.act",
    ]
    assert backward_hooks(mine.hooks) == [
        *begin,
        *recompute,
        "pre_bw Checkpointed.body",
        "pre_bw Checkpointed.body.fc2",
        "pre_bw Checkpointed.body.act",
        "post_bw Checkpointed.body.fc2",
        "pre_bw Checkpointed.body.fc1",
        "post_bw Checkpointed.body.act",
        "post_bw Checkpointed.body",
        "post_bw Checkpointed.body.fc1",
        "post_bw Checkpointed",
    ]


def test_nested_reentrant_recompute_keeps_the_outer_module() -> None:
    def scenario() -> nn.Module:
        return train(Checkpointed(True, Checkpointed(True, nn.Tanh())))

    def recomputed(lines: list[str]) -> str:
        return next(line for line in reversed(lines) if line.startswith("tanh:"))

    root = "Checkpointed"
    assert recomputed(upstream(scenario).backward) == f"tanh: {root} {root}.body.body"
    assert recomputed(ours(scenario).backward) == f"tanh: {root} {root}.body {root}.body.body"
    assert upstream(scenario).backward[-1] == f"tanh_backward: {root}"
    assert ours(scenario).backward[-1] == f"tanh_backward: {root} {root}.body {root}.body.body"


def test_reentrant_checkpoint_of_a_function() -> None:
    def scenario() -> nn.Module:
        return train(CheckpointedFunction(use_reentrant=True))

    root = "CheckpointedFunction"
    theirs, mine = upstream(scenario), ours(scenario)
    assert differences(theirs.backward, mine.backward) == [
        (f"{op}: {root}", f"{op}: {root} {root}.body") for op in ("mm", "mm", "sum")
    ]
    # The function's own ops, recomputed and then differentiated, belong to the root.
    assert mine.backward.count(f"sin: {root}") == 2
    assert mine.backward.count(f"cos: {root}") == 2


def reentrant_inside_plain() -> nn.Module:
    return train(Checkpointed(False, Checkpointed(True)))


def plain_inside_reentrant() -> nn.Module:
    return train(Checkpointed(True, Checkpointed(False)))


@pytest.mark.parametrize("scenario", [reentrant_inside_plain, plain_inside_reentrant])
def test_mixed_nesting_ends_each_backward_once(scenario: Callable[[], nn.Module]) -> None:
    hooks = ours(scenario).hooks
    modules = ["", ".head", ".body", ".body.head", ".body.body", ".body.body.fc1"]
    modules += [".body.body.act", ".body.body.fc2"]
    for module in modules:
        assert hooks.count(f"pre_bw Checkpointed{module}") == 1
        assert hooks.count(f"post_bw Checkpointed{module}") == 1


@pytest.mark.parametrize(
    ("use_reentrant", "recomputed"),
    [
        # Caused by the backward of layer 1, which needs the output of layer 0.
        (False, ["addmm: Sequential.0 Sequential.1"]),
        (True, ["addmm: Sequential.0", "addmm: Sequential.1"]),
    ],
)
def test_sequential_checkpoint_names_each_layer(use_reentrant: bool, recomputed: list[str]) -> None:
    def scenario() -> nn.Module:
        model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(4)))
        model(inputs())  # assigns the names
        checkpoint_sequential(model, 2, inputs(), use_reentrant=use_reentrant).sum().backward()
        return model

    backward = ours(scenario).backward
    assert [line for line in backward if line.startswith("addmm")] == recomputed
    layers = [line.removeprefix("mm: ") for line in backward if line.startswith("mm")]
    assert layers == [f"Sequential.{i}" for i in (3, 3, 2, 2, 1, 1, 0, 0)]


@pytest.mark.parametrize("early_stop", [False, True])
def test_early_stop_leaves_nothing_open(early_stop: bool) -> None:
    model = Checkpointed(use_reentrant=False)
    tracker = tidegauge.ModTracker()
    with tracker, set_checkpoint_early_stop(early_stop):
        for _ in range(3):
            train(model)
            assert names(tracker.parents) == "-"


def test_selective_checkpoint_agrees() -> None:
    def keep_products(ctx: object, op: object, *args: object, **kwargs: object) -> CheckpointPolicy:
        is_product = op == torch.ops.aten.addmm.default
        return CheckpointPolicy.MUST_SAVE if is_product else CheckpointPolicy.PREFER_RECOMPUTE

    def scenario() -> nn.Module:
        return train(
            Checkpointed(
                False, context_fn=lambda: create_selective_checkpoint_contexts(keep_products)
            )
        )

    theirs, mine = upstream(scenario), ours(scenario)
    assert mine.forward == theirs.forward
    assert mine.backward == theirs.backward
    assert sorted(mine.hooks) == sorted(theirs.hooks)


@contextlib.contextmanager
def raises_boom() -> Iterator[None]:
    with pytest.raises(RuntimeError, match="boom"):
        yield


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_exception_in_recompute_is_followed_by_a_good_step(use_reentrant: bool) -> None:
    fails = [False]

    def body(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        if fails[0] and torch._C._current_graph_task_id() != -1:
            raise RuntimeError("boom")
        return self.fc(x.sin()).cos()

    model = Checkpointed(use_reentrant, Calls(body))
    tracker = tidegauge.ModTracker()
    with tracker:
        fails[0] = True
        with raises_boom():
            train(model)
        assert names(tracker.parents) == "-"
    fails[0] = False
    model.zero_grad()
    after, fresh = (
        ours(lambda model=model: train(model))
        for model in (model, Checkpointed(use_reentrant, Calls(body)))
    )
    assert after.at_end == "-"
    assert after.backward == fresh.backward
    assert after.hooks == fresh.hooks


def test_recompute_in_backward_of_another_module_is_not_its_child() -> None:
    """The node that triggers the recompute belongs to the recomputed module itself."""
    seen: list[str] = []
    tracker = tidegauge.ModTracker()

    def body(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        seen.append(f"{names(tracker.parents)} bw={tracker.is_bw}")
        return x.sin()

    model = nn.Sequential(nn.Linear(4, 4), Checkpointed(False, Calls(body)), nn.Linear(4, 4))
    with tracker:
        train(model)
    own = "Sequential Sequential.1 Sequential.1.body"
    assert seen == [f"{own} bw=False", f"{own} bw=True"]


def test_checkpoint_at_top_level_has_only_its_own_modules() -> None:
    model = Net()
    tracker = tidegauge.ModTracker()
    seen: list[str] = []
    model.act.register_forward_hook(lambda *_: seen.append(names(tracker.parents)))
    with tracker:
        checkpoint(model, inputs(), use_reentrant=True).sum().backward()
        assert names(tracker.parents) == "-"
    assert seen == ["Net Net.act"] * 2
