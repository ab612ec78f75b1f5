# SPDX-License-Identifier: BSD-3-Clause
"""Fully qualified names: their form, when they change, and which module has them."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import tidegauge
import torch
from models import Calls, Net, Shared, inputs, train
from observe import Tracker, UpstreamModTracker, names
from torch import nn

BOTH = pytest.mark.parametrize("make", [UpstreamModTracker, tidegauge.ModTracker])


def fqns(tracker: Tracker, *modules: nn.Module) -> list[str | None]:
    return [tracker.get_known_fqn(module) for module in modules]


@BOTH
def test_root_is_its_class_and_the_rest_its_path(make: type[Tracker]) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Tanh()))
    tracker = make()
    with tracker:
        model(inputs())
    assert fqns(tracker, *model.modules()) == [
        *["Sequential", "Sequential.0"],
        *["Sequential.1", "Sequential.1.0"],
    ]


@BOTH
def test_module_list_is_part_of_the_path(make: type[Tracker]) -> None:
    class Blocks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList([nn.Tanh(), nn.Tanh()])
            self.heads = nn.ModuleDict({"a": nn.Tanh()})

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.heads["a"](self.blocks[1](self.blocks[0](x)))

    model, tracker = Blocks(), make()
    with tracker:
        model(inputs())
    assert fqns(tracker, model.blocks, model.blocks[1], model.heads["a"]) == [
        *["Blocks.blocks", "Blocks.blocks.1"],
        "Blocks.heads.a",
    ]


@BOTH
def test_children_are_named_with_their_root_before_they_are_called(make: type[Tracker]) -> None:
    model, tracker = Net(), make()
    tracker.register_user_hooks(pre_fw_hook=lambda *_: seen.append(fqns(tracker, model.fc2)))
    seen: list[Any] = []
    with tracker:
        model(inputs())
    assert seen[0] == ["Net.fc2"]


@BOTH
def test_names_are_kept_after_exit_and_in_the_next_entry(make: type[Tracker]) -> None:
    model, tracker = Net(), make()
    with tracker:
        model(inputs())
    assert fqns(tracker, model, model.fc1) == ["Net", "Net.fc1"]
    with tracker:
        model.fc1(inputs())
    assert fqns(tracker, model, model.fc1) == ["Net", "Net.fc1"]


@BOTH
def test_module_under_two_attributes_has_the_first_path(make: type[Tracker]) -> None:
    model, tracker = Shared(), make()
    with tracker:
        model(inputs())
    assert fqns(tracker, model.second) == ["Shared.first"]


@BOTH
def test_module_under_two_parents_has_the_last_path(make: type[Tracker]) -> None:
    shared = nn.Linear(4, 4)
    model, tracker = nn.Sequential(nn.Sequential(shared), nn.Sequential(shared)), make()
    with tracker:
        model(inputs())
    assert fqns(tracker, shared) == ["Sequential.1.0"]


@BOTH
def test_child_that_was_called_alone_first_is_renamed_by_its_parent(make: type[Tracker]) -> None:
    model, tracker = Net(), make()
    with tracker:
        model.fc1(inputs())
        assert fqns(tracker, model.fc1) == ["Linear"]
        model(inputs())
    assert fqns(tracker, model.fc1) == ["Net.fc1"]


def test_submodules_of_a_renamed_child_are_renamed() -> None:
    expected = {UpstreamModTracker: "Net.fc1", tidegauge.ModTracker: "Sequential.0.fc1"}
    for make, name in expected.items():
        model, tracker = nn.Sequential(Net()), make()
        with tracker:
            model[0](inputs())
            model(inputs())
        assert fqns(tracker, model[0], model[0].fc1) == ["Sequential.0", name]


def test_child_added_later_is_named_by_its_path() -> None:
    for make, name in ((UpstreamModTracker, "Tanh"), (tidegauge.ModTracker, "Sequential.1")):
        model, tracker = nn.Sequential(nn.Linear(4, 4)), make()
        with tracker:
            model(inputs())
            model.append(nn.Tanh())
            model(inputs())
        assert fqns(tracker, model[1]) == [name]


def test_replaced_child_gets_the_path_of_the_old_one() -> None:
    for make, name in ((UpstreamModTracker, "GELU"), (tidegauge.ModTracker, "Net.act")):
        model, tracker = Net(), make()
        with tracker:
            model(inputs())
            model.act = nn.GELU()
            model(inputs())
        assert fqns(tracker, model.act) == [name]


def test_two_roots_of_one_class_have_two_names() -> None:
    expected = {
        UpstreamModTracker: ["Net", "Net.fc1", "Net", "Net.fc1"],
        tidegauge.ModTracker: ["Net", "Net.fc1", "Net#2", "Net#2.fc1"],
    }
    for make, expected_names in expected.items():
        first, second, tracker = Net(), Net(), make()
        with tracker:
            second(first(inputs()))
        assert fqns(tracker, first, first.fc1, second, second.fc1) == expected_names


class Equal(nn.Module):
    """All instances compare equal."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Equal)

    def __hash__(self) -> int:
        return 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sin()


def test_modules_that_compare_equal_are_distinguished() -> None:
    expected = {
        UpstreamModTracker: ["Sequential.2.0"] * 3,
        tidegauge.ModTracker: ["Sequential.0", "Sequential.1", "Sequential.2.0"],
    }
    for make, expected_names in expected.items():
        model, tracker = nn.Sequential(Equal(), Equal(), nn.Sequential(Equal())), make()
        with tracker:
            model(inputs())
        assert fqns(tracker, model[0], model[1], model[2][0]) == expected_names


@pytest.mark.filterwarnings("ignore:global module forward hook")  # upstream's, as it fails
def test_module_without_a_hash_can_be_tracked() -> None:
    class Unhashable(nn.Module):
        __hash__ = None  # type: ignore[assignment]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sin()

    model = Unhashable()
    with UpstreamModTracker(), pytest.raises(TypeError, match="unhashable"):
        model(inputs())
    tracker = tidegauge.ModTracker()
    with tracker:
        train(model)
    assert fqns(tracker, model) == ["Unhashable"]


def test_name_of_a_dead_root_is_reused() -> None:
    tracker = tidegauge.ModTracker()
    with tracker:
        for _ in range(3):
            model = Net()
            train(model)
            assert fqns(tracker, model, model.fc1) == ["Net", "Net.fc1"]
            del model
            gc.collect()


def test_new_root_gets_a_new_name_while_a_dead_root_has_a_pending_backward() -> None:
    tracker = tidegauge.ModTracker()
    with tracker:
        dead = nn.Tanh()
        loss = dead(inputs()).sum()
        del dead
        gc.collect()
        alive = nn.Tanh()
        (loss + alive(inputs()).sum()).backward()
        assert fqns(tracker, alive) == ["Tanh"]


def test_child_deleted_from_its_parent_keeps_its_name() -> None:
    model, tracker = Net(), tidegauge.ModTracker()
    with tracker:
        model(inputs())
        taken_out = model.act
        del model.act
        assert fqns(tracker, taken_out) == ["Net.act"]
        taken_out(inputs())
        assert fqns(tracker, taken_out) == ["Net.act"]


def test_child_of_a_dead_root_that_is_called_alone_keeps_its_path() -> None:
    tracker = tidegauge.ModTracker()
    with tracker:
        model = Net()
        model(inputs())
        child = model.fc1
        del model
        gc.collect()
        train(child)
        assert fqns(tracker, child) == ["Net.fc1"]


def test_module_called_by_another_that_is_not_its_parent_is_a_root() -> None:
    helper = nn.Tanh()
    model = Calls(lambda self, x: helper(self.fc(x)))
    seen: list[str] = []
    tracker = tidegauge.ModTracker()
    tracker.register_user_hooks(pre_fw_hook=lambda *_: seen.append(names(tracker.parents)))
    with tracker:
        model(inputs())
    assert seen == ["Calls", "Calls Calls.fc", "Calls Tanh"]


@pytest.mark.filterwarnings("ignore:global module forward hook")  # upstream's, as it fails
def test_module_below_itself_does_not_hang() -> None:
    model = Calls(lambda self, x: self.fc(x))
    model.fc.parent = model  # type: ignore[assignment]
    with UpstreamModTracker(), pytest.raises(RecursionError):
        model(inputs())
    tracker = tidegauge.ModTracker()
    with tracker:
        model(inputs())
    assert fqns(tracker, model, model.fc) == ["Calls", "Calls.fc"]


def test_each_tracker_has_its_own_names() -> None:
    model, outer, inner = Net(), tidegauge.ModTracker(), tidegauge.ModTracker()
    with inner:
        model.fc1(inputs())
    with outer:
        model(inputs())
    assert fqns(inner, model.fc1, model) == ["Linear", None]
    assert fqns(outer, model.fc1, model) == ["Net.fc1", "Net"]


def test_script_and_parametrized_modules_are_named_by_their_class() -> None:
    plain = nn.Linear(4, 4)
    parametrized = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
    expected = []
    for make in (UpstreamModTracker, tidegauge.ModTracker):
        tracker = make()
        with tracker:
            train(nn.Sequential(plain, parametrized))
            expected.append(fqns(tracker, plain, *parametrized.modules()))
    assert expected[0] == expected[1]
    assert expected[1][:2] == ["Sequential.0", "Sequential.1"]


def test_lazy_module_changes_its_class_but_not_its_name() -> None:
    model = nn.Sequential(nn.LazyLinear(4))
    alone = nn.LazyLinear(4)
    for make in (UpstreamModTracker, tidegauge.ModTracker):
        tracker = make()
        with tracker:
            model(inputs())
            alone(inputs())
        assert fqns(tracker, model[0]) == ["Sequential.0"]
    assert type(alone) is nn.Linear
