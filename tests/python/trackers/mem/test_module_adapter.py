# SPDX-License-Identifier: BSD-3-Clause
"""Labels and names of modules. tests/track/test_module_adapter.cpp runs the same checks in C++."""

from __future__ import annotations

import gc

import torch
from tidegauge import MemTracker
from torch import nn
from tracked import FLOAT, now, track

ROW = 16 * FLOAT


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(16))
        self.register_buffer("mask", torch.ones(16))
        self.inner = Inner()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


def read(tracker: MemTracker, category: str) -> int:
    return now(tracker).get(category, 0)


def parameter_size(tracker: MemTracker, net: nn.Module) -> int:
    return tracker.memory_tracking[net].parameter_mem


def test_labels_parameters_buffers_and_gradients_of_all_modules() -> None:
    net = Net()
    net.weight.grad = torch.ones(16)
    tracker = track(net)
    assert read(tracker, "Parameter") == 2 * ROW
    assert read(tracker, "Buffer") == ROW
    assert read(tracker, "Gradient") == ROW


def test_exchanged_parameter_is_labelled_at_the_next_call() -> None:
    net = Net()
    tracker = track(net)
    with tracker:
        net(torch.ones(16))
        net.weight.data = torch.ones(32)
        net(torch.ones(16))
        # Not a snapshot, which would refresh the labels itself.
        splits = tracker._native.splits(False)
    assert splits[torch.device("cpu")]["Parameter"] == 3 * ROW


def test_new_parameter_is_labelled_by_a_snapshot() -> None:
    net = Net()
    tracker = track(net)
    with tracker:
        net.inner._parameters["bias"] = nn.Parameter(torch.ones(16))  # without a call of nn.Module
        assert read(tracker, "Parameter") == 3 * ROW


def test_exchanged_gradient_is_labelled_by_a_snapshot() -> None:
    net = Net()
    tracker = track(net)
    with tracker:
        net.weight.grad = torch.ones(16)
        assert read(tracker, "Gradient") == ROW


def test_sizes_are_recorded_at_the_first_call_and_after_a_reset() -> None:
    net = Net()
    tracker = track(net)
    with tracker:
        net(torch.ones(16))
        assert parameter_size(tracker, net) == 2 * ROW
        tracker.reset_mod_stats()
        assert net not in tracker.memory_tracking
        net(torch.ones(16))
        assert parameter_size(tracker, net) == 2 * ROW


def test_parts_of_a_scripted_module_have_their_names() -> None:
    scripted = torch.jit.script(nn.Sequential(nn.Linear(4, 4)))
    tracker = MemTracker()
    with tracker:
        scripted(torch.ones(1, 4))
        (child,) = dict(scripted._modules.items()).values()
        name = tracker._mod_tracker.get_known_fqn(child)
    assert name == "RecursiveScriptModule.0"


def test_dead_modules_are_forgotten() -> None:
    tracker = track()
    with tracker:
        net = Net()
        net(torch.ones(16))
        assert len(tracker.memory_tracking) == 2
        del net
        gc.collect()
        assert len(tracker.memory_tracking) == 0


def test_child_has_the_name_of_its_path() -> None:
    net = Net()
    net.again = net.inner
    tracker = track(net)
    with tracker:
        net(torch.ones(16))
        assert tracker.memory_tracking[net].mod_fqn == "Net"
        assert tracker.memory_tracking[net.inner].mod_fqn == "Net.inner"


def test_new_child_of_a_running_module_has_the_name_of_its_path() -> None:
    class Grows(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.added = Inner()
            self.stranger = [Inner()]
            return self.stranger[0](self.added(x))

    net = Grows()
    tracker = track(net)
    with tracker:
        net(torch.ones(16))
        assert tracker.memory_tracking[net.added].mod_fqn == "Grows.added"
        assert tracker.memory_tracking[net.stranger[0]].mod_fqn == "Inner"
