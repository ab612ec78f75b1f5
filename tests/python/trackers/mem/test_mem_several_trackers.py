# SPDX-License-Identifier: BSD-3-Clause
"""Several trackers: at once, nested, one after the other, and created in unusual places."""

from __future__ import annotations

import sys
from typing import Any

import torch
from runs import Split, make_tracker
from scenarios_models import mlp
from torch import nn
from tracked import FLOAT, now, parameter_bytes, peak, split, track, train_once

INPUTS = 8 * 32 * FLOAT


def patched() -> tuple[Any, ...]:
    """The attributes that trackers replace while they are active."""
    optimizer = sys.modules["torch.optim.optimizer"]
    return (
        torch.UntypedStorage.resize_,
        nn.Module.__call__,
        nn.Module.register_parameter,
        nn.Module.register_buffer,
        nn.Module.__setattr__,
        optimizer._global_optimizer_pre_hooks.copy(),
        optimizer._global_optimizer_post_hooks.copy(),
        nn.modules.module._global_forward_hooks.copy(),
        nn.modules.module._global_forward_pre_hooks.copy(),
    )


def one_step(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    loss = model(x).sum()
    loss.backward()
    return loss


def expected(model: nn.Module, x: torch.Tensor) -> tuple[Split, Split]:
    """(after backward, at the peak) of one step, from a single tracker."""
    _, after, top = train_once(model, x)
    model.zero_grad()
    return after, top


def test_two_trackers_at_once_give_the_same_figures() -> None:
    model, x = mlp(), torch.ones(8, 32)
    after, top = expected(model, x)
    first, second = track(model, x), track(model, x)
    with first, second:
        loss = one_step(model, x)
        assert now(first) == now(second) == after
    del loss
    assert peak(first) == peak(second) == top


def test_trackers_may_overlap_without_nesting() -> None:
    model, x = mlp(), torch.ones(8, 32)
    after, top = expected(model, x)
    before = patched()
    first, second = track(model, x), track(model, x)
    first.__enter__()
    second.__enter__()
    loss = one_step(model, x)
    first.__exit__(None, None, None)  # the one that was entered first
    assert now(second) == after
    model.zero_grad()
    del loss
    y = torch.ones(1024)
    assert now(second)["Activation"] == y.nbytes
    second.__exit__(None, None, None)
    assert peak(first) == top
    assert patched() == before


def test_inner_tracker_sees_only_its_own_context() -> None:
    outer, inner = track(), track()
    with outer:
        a = torch.ones(100)
        with inner:
            b = torch.ones(200)
            assert now(inner) == split(Activation=b.nbytes)
        c = torch.ones(400)
        assert now(outer) == split(Activation=a.nbytes + b.nbytes + c.nbytes)
        assert now(inner) == split(Activation=b.nbytes)
        del b
        assert now(outer) == split(Activation=a.nbytes + c.nbytes)
        assert now(inner) == {}
    assert peak(inner) == split(Activation=200 * FLOAT)
    assert peak(outer) == split(Activation=700 * FLOAT)


def test_each_tracker_has_its_own_labels() -> None:
    x = torch.ones(64)
    first, second = track(x), track(nn.Linear(1, 1))
    model = nn.Module()
    model.register_buffer("x", x)
    second.track_external(model)
    assert now(first) == split(Other=x.nbytes)
    assert now(second)["Buffer"] == x.nbytes


def test_trackers_in_sequence() -> None:
    model, x = mlp(), torch.ones(8, 32)
    after, top = expected(model, x)
    before = patched()
    for _ in range(3):
        tracker = track(model, x)
        with tracker:
            loss = one_step(model, x)
            assert now(tracker) == after
            del loss
        assert peak(tracker) == top
        model.zero_grad()
        assert now(tracker) == split(Parameter=parameter_bytes(model), Other=INPUTS)
        assert patched() == before


def test_tracker_made_within_another_and_used_later() -> None:
    """Upstream leaves UntypedStorage.resize_ patched for the life of the process."""
    model, x = mlp(), torch.ones(8, 32)
    after, top = expected(model, x)
    before = patched()
    with track(model, x):
        later = track(model, x)
    assert patched() == before
    with later:
        loss = one_step(model, x)
        assert now(later) == after
    assert peak(later) == top
    assert patched() == before
    del loss


def test_upstream_leaves_resize_patched_in_that_case() -> None:
    resize = torch.UntypedStorage.resize_
    try:
        with make_tracker("upstream"):
            later = make_tracker("upstream")
        with later:
            pass
        assert torch.UntypedStorage.resize_ is not resize
    finally:
        torch.UntypedStorage.resize_ = resize  # type: ignore[method-assign]


def test_one_tracker_entered_twice_counts_once() -> None:
    model, x = mlp(), torch.ones(8, 32)
    after, top = expected(model, x)
    before = patched()
    tracker = track(model, x)
    with tracker, tracker:
        loss = one_step(model, x)
        assert now(tracker) == after
    assert patched() == before
    del loss
    assert peak(tracker) == top


def test_second_entry_restarts_the_peak() -> None:
    tracker = track()
    with tracker:
        torch.ones(1024)
    assert peak(tracker) == split(Activation=4096)
    with tracker:
        assert peak(tracker) == {}
        torch.ones(16)
    assert peak(tracker) == split(Activation=64)


def test_tracker_can_be_dropped_while_storages_live() -> None:
    """The deleters of its storages outlive it."""
    tensors = []
    for _ in range(10):
        with track():
            tensors.append(torch.ones(1024))
    with track() as last:
        tensors.clear()
        assert now(last) == {}
        y = tensors or torch.ones(16)
        assert now(last) == split(Activation=64)
    del y


def test_frees_after_exit_are_seen() -> None:
    tracker = track()
    with tracker:
        x, y = torch.ones(16), torch.ones(32)
    assert now(tracker) == split(Activation=64 + 128)
    del y
    assert now(tracker) == split(Activation=64)
    z = torch.ones(8)  # not seen: no tracker is entered
    assert now(tracker) == split(Activation=64)
    del x, z
    assert now(tracker) == {}


def test_ours_and_upstream_can_run_together() -> None:
    """Upstream's mode changes the run itself, so only the end is compared."""
    model, x = mlp(), torch.ones(8, 32)
    after, _ = expected(model, x)
    ours, upstream = track(model, x), make_tracker("upstream")
    upstream.track_external(model, x)
    for outer, inner in ((ours, upstream), (upstream, ours)):
        model.zero_grad()
        upstream.reset_mod_stats()
        with outer, inner:
            loss = one_step(model, x)
            assert now(ours) == now(upstream) == after
        del loss


def test_each_tracker_has_its_own_module_statistics() -> None:
    model, x = mlp(), torch.ones(8, 32)
    outer, inner = track(model, x), track(model, x)
    with outer:
        model[0](x)
        with inner:
            model[1](x)
    assert [stats.mod_fqn for stats in outer.memory_tracking.values()] == ["Linear", "ReLU"]
    assert [stats.mod_fqn for stats in inner.memory_tracking.values()] == ["ReLU"]
