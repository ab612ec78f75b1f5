# SPDX-License-Identifier: BSD-3-Clause
"""Differences of our object from upstream's that do not concern module names."""

from __future__ import annotations

from typing import Any

import pytest
import tidegauge
from models import Calls, Net, inputs, train
from observe import Tracker, UpstreamModTracker, names
from torch import nn

BOTH = pytest.mark.parametrize("make", [UpstreamModTracker, tidegauge.ModTracker])


def test_parents_is_a_snapshot_of_the_active_modules() -> None:
    """Upstream returns its own set, which it changes, and replaces after each backward."""

    def held(tracker: Tracker) -> list[str]:
        sets: list[set[str]] = []
        tracker.register_user_hooks(pre_fw_hook=lambda mod, args: sets.append(tracker.parents))
        with tracker:
            nn.Sequential(nn.Tanh())(inputs())
        return [names(parents) for parents in sets]

    assert held(UpstreamModTracker()) == ["-", "-"]
    assert held(tidegauge.ModTracker()) == ["Sequential", "Sequential Sequential.0"]


def test_changing_parents_does_not_affect_the_tracker() -> None:
    def after_change(tracker: Tracker) -> str:
        tracker.parents.add("Wrong")
        return names(tracker.parents)

    assert after_change(UpstreamModTracker()) == "Wrong"
    assert after_change(tidegauge.ModTracker()) == "-"
    with pytest.raises(AttributeError):
        tidegauge.ModTracker().parents = {"Global"}  # type: ignore[misc]


def test_second_exit_is_an_error() -> None:
    def leave_twice(tracker: Tracker) -> None:
        with tracker:
            pass
        tracker.__exit__(None, None, None)

    leave_twice(UpstreamModTracker())  # removes hooks that are already removed
    with pytest.raises(AttributeError, match="was exited without being entered"):
        leave_twice(tidegauge.ModTracker())


def test_backward_hook_runs_for_calls_made_after_its_registration() -> None:
    """Nodes get hooks only if a user hook is registered, which keeps tracking cheap."""

    def count_calls(tracker: Tracker) -> int:
        calls: list[Any] = []
        model = nn.Tanh()
        with tracker:
            loss = model(inputs()).sum()
            tracker.register_user_hooks(pre_bw_hook=lambda mod, grads: calls.append(mod))
            loss.backward()
        return len(calls)

    assert count_calls(UpstreamModTracker()) == 1
    assert count_calls(tidegauge.ModTracker()) == 0


@BOTH
def test_backward_hooks_of_a_graph_still_run_after_exit(make: type[Tracker]) -> None:
    tracker, model = make(), nn.Tanh()
    calls: list[str] = []
    tracker.register_user_hooks(
        pre_bw_hook=lambda mod, grads: calls.append("pre"),
        post_bw_hook=lambda mod, grads: calls.append("post"),
    )
    with tracker:
        loss = model(inputs()).sum()
    loss.backward()
    assert calls == ["pre", "post"]
    assert names(tracker.parents) == "-"


@BOTH
def test_input_without_gradient_is_none_among_the_others(make: type[Tracker]) -> None:
    tracker = make()
    given: list[Any] = []
    tracker.register_user_hooks(
        post_bw_hook=lambda mod, grads: given.append(grads) if isinstance(mod, Calls) else None
    )
    with tracker:
        train(Calls(lambda self, x, unused: x.sin()), inputs(), inputs())
    (((used, unused),),) = given
    assert used is not None
    assert unused is None


def test_gradients_of_keyword_inputs_are_given() -> None:
    def count(tracker: Tracker) -> list[int]:
        counts: list[int] = []
        tracker.register_user_hooks(
            post_bw_hook=lambda mod, grads: counts.append(len(grads[0]) if grads else 0)
        )
        with tracker:
            nn.Tanh()(input=inputs()).sum().backward()
        return counts

    assert count(UpstreamModTracker()) == [0]
    assert count(tidegauge.ModTracker()) == [1]


def test_private_state_of_upstream_is_missing() -> None:
    """Private, and unused in torch: we compute the active set instead of storing it."""
    private = {"_active_module_cnt", "_known_modules", "_seen_modules", "_has_callback"}
    assert private <= set(vars(UpstreamModTracker()))
    assert not private & set(vars(tidegauge.ModTracker()))


def test_two_trackers_at_once_do_not_mix() -> None:
    first, second = tidegauge.ModTracker(), tidegauge.ModTracker()
    seen: list[tuple[str, str]] = []
    model = Net()
    first.register_user_hooks(
        pre_bw_hook=lambda mod, g: seen.append((names(first.parents), names(second.parents)))
    )
    with first:
        hidden = model.fc1(inputs())
        with second:
            model.fc2(hidden).sum().backward()
    # In the hook of `first`, `second` names the running module: the same, or one it never saw.
    assert seen == [("Linear#2", "Linear"), ("Linear", "-")]
