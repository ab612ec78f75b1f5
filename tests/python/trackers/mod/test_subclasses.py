# SPDX-License-Identifier: BSD-3-Clause
"""Subclasses: overriding `_fw_pre_hook`/`_fw_post_hook`, and calling the methods by hand."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import tidegauge
import torch
from models import Checkpointed, Net, Residual, inputs, train
from observe import Tracker, UpstreamModTracker, names, observe
from torch import nn
from torch.nn.modules import module as nn_module
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

BOTH = pytest.mark.parametrize("base", [UpstreamModTracker, tidegauge.ModTracker])


def make_subclass(base: type[Any]) -> type[Any]:
    """Overrides both hooks, calls super, and counts."""

    class Counting(base):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[str] = []

        def _fw_pre_hook(self, mod: nn.Module, input: Any) -> None:
            super()._fw_pre_hook(mod, input)
            self.seen.append(f"begin {names(self.parents)}")

        def _fw_post_hook(self, mod: nn.Module, input: Any, output: Any) -> None:
            self.seen.append(f"end {names(self.parents)}")
            super()._fw_post_hook(mod, input, output)

    return Counting


@BOTH
def test_overridden_hooks_are_called_with_the_module_active(base: type[Tracker]) -> None:
    tracker = make_subclass(base)()
    with tracker:
        Residual()(inputs())
    assert tracker.seen == [
        "begin Residual",
        "begin Residual Residual.left",
        "end Residual Residual.left",
        "begin Residual Residual.right",
        "end Residual Residual.right",
        "end Residual",
    ]


@BOTH
def test_overridden_hooks_are_global_forward_hooks(base: type[Tracker]) -> None:
    def hooks() -> tuple[int, int]:
        return len(nn_module._global_forward_pre_hooks), len(nn_module._global_forward_hooks)

    before = hooks()
    with make_subclass(base)():
        assert hooks() == (before[0] + 1, before[1] + 1)
    assert hooks() == before


@pytest.mark.parametrize("scenario", [Residual, lambda: Checkpointed(False)])
def test_subclass_gives_the_same_answers_as_the_tracker(scenario: Any) -> None:
    plain = observe(tidegauge.ModTracker(), lambda: train(scenario()))
    derived = observe(make_subclass(tidegauge.ModTracker)(), lambda: train(scenario()))
    assert derived.forward == plain.forward
    assert derived.backward == plain.backward
    assert derived.hooks == plain.hooks


def test_subclass_that_overrides_nothing_has_no_global_hooks() -> None:
    class Plain(tidegauge.ModTracker):
        pass

    before = len(nn_module._global_forward_pre_hooks)
    tracker = Plain()
    with tracker:
        assert len(nn_module._global_forward_pre_hooks) == before
        model = train(Net())
    assert tracker.get_known_fqn(model.act) == "Net.act"


@BOTH
def test_exception_in_a_forward_also_runs_the_overridden_post_hook(base: type[Tracker]) -> None:
    tracker = make_subclass(base)()
    with tracker:
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            nn.Sequential(nn.Linear(4, 4))(torch.ones(2, 5))
        assert tracker.seen[-1] == "end Sequential"
        assert names(tracker.parents) == "-"


@BOTH
def test_own_enter_that_sets_the_handles_is_undone_by_exit(base: type[Any]) -> None:
    """Like CommDebugMode: does not call super().__enter__()."""

    class Own(base):
        def __enter__(self) -> Any:
            self._fw_pre_handle = register_module_forward_pre_hook(self._fw_pre_hook)
            self._fw_post_handle = register_module_forward_hook(self._fw_post_hook)
            return self

    before = len(nn_module._global_forward_pre_hooks)
    tracker = Own()
    for _ in range(2):
        with tracker:
            model = train(Net())
        assert len(nn_module._global_forward_pre_hooks) == before
    assert tracker.get_known_fqn(model.act).endswith(".act")


@BOTH
def test_append_and_pop_by_hand(base: type[Tracker]) -> None:
    tracker, model = base(), nn.Tanh()
    name = tracker._get_mod_name(model)
    append = tracker._get_append_fn(weakref.ref(model), name, False)
    pop = tracker._get_pop_fn(weakref.ref(model), name, False)
    append()
    assert tracker.parents == {"Global", "Tanh"}
    pop()
    assert tracker.parents == {"Global"}


@BOTH
def test_pop_of_an_inactive_module_is_a_runtime_error(base: type[Tracker]) -> None:
    tracker, model = base(), nn.Tanh()
    pop = tracker._get_pop_fn(weakref.ref(model), tracker._get_mod_name(model), False)
    with pytest.raises(RuntimeError, match="The Module hierarchy tracking is wrong"):
        pop()


def test_pop_of_an_inactive_module_says_what_to_do() -> None:
    tracker, model = tidegauge.ModTracker(), nn.Tanh()
    pop = tracker._get_pop_fn(weakref.ref(model), tracker._get_mod_name(model), False)
    with pytest.raises(RuntimeError, match=r"Tanh ends but is not active\. Call `_get_append_fn`"):
        pop()


@BOTH
def test_backward_functions_called_by_hand_run_the_user_hooks(base: type[Tracker]) -> None:
    tracker, model = base(), nn.Tanh()
    calls: list[str] = []
    tracker.register_user_hooks(
        pre_bw_hook=lambda mod, grads: calls.append(f"pre {type(mod).__name__} {len(grads)}"),
        post_bw_hook=lambda mod, grads: calls.append(f"post {type(mod).__name__} {len(grads)}"),
    )
    name = tracker._get_mod_name(model)
    y = inputs().sin()
    x_hook = tracker._get_pop_fn(weakref.ref(model), name, True)
    y_hook = tracker._get_append_fn(weakref.ref(model), name, True)
    y.register_hook(lambda grad: (y_hook(grad), x_hook(grad), None)[-1])
    y.sum().backward()
    assert calls == ["pre Tanh 1", "post Tanh 1"]


@BOTH
def test_name_is_assigned_on_demand(base: type[Tracker]) -> None:
    """DebugMode asks for a name in its own hook; this also names the children."""
    tracker, model = base(), Net()
    assert tracker._get_mod_name(model) == "Net"
    assert tracker._get_mod_name(model) == "Net"
    assert tracker.get_known_fqn(model.act) == "Net.act"


@BOTH
def test_exit_needs_no_arguments(base: type[Tracker]) -> None:
    tracker = base()
    assert tracker.__enter__() is tracker
    assert tracker.__exit__() is None
