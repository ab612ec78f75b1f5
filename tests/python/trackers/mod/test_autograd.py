# SPDX-License-Identifier: BSD-3-Clause
"""`parents` wherever autograd calls user code; autograd.grad; double backward."""

from __future__ import annotations

from typing import Any

import pytest
import tidegauge
import torch
from models import Calls, Checkpointed, Net, Residual, Tied, inputs, train
from observe import Tracker, UpstreamModTracker, names, ours
from torch import nn


def active_at_accumulation(tracker: Tracker, model: nn.Module, *args: Any) -> dict[str, str]:
    """The active modules when each parameter's gradient has been accumulated."""
    seen: dict[str, str] = {}
    for name, parameter in model.named_parameters():
        parameter.register_post_accumulate_grad_hook(
            lambda _, name=name: seen.update({name: names(tracker.parents)})
        )
    with tracker:
        train(model, *args)
    return seen


def test_gradient_is_accumulated_within_the_owner_of_the_parameter() -> None:
    assert active_at_accumulation(tidegauge.ModTracker(), Residual()) == {
        "left.weight": "Residual Residual.left",
        "left.bias": "Residual Residual.left",
        "right.weight": "Residual Residual.right",
        "right.bias": "Residual Residual.right",
    }


def test_gradient_accumulated_late_belongs_to_its_owner() -> None:
    """The weights of the first layer come last, when upstream has already popped the layer."""
    theirs = active_at_accumulation(UpstreamModTracker(), Net())
    mine = active_at_accumulation(tidegauge.ModTracker(), Net())
    assert theirs["fc1.weight"] == "-"
    assert mine["fc1.weight"] == "Net Net.fc1"
    assert mine["fc2.bias"] == theirs["fc2.bias"] == "Net Net.fc2"


def test_tied_weight_belongs_to_the_module_that_registered_it_first() -> None:
    seen = active_at_accumulation(tidegauge.ModTracker(), Tied(), torch.tensor([1, 2]))
    assert seen == {"embed.weight": "Tied Tied.embed"}


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpointed_parameter_belongs_to_its_owner(use_reentrant: bool) -> None:
    seen = active_at_accumulation(tidegauge.ModTracker(), Checkpointed(use_reentrant))
    body = "Checkpointed Checkpointed.body"
    assert seen["body.fc1.weight"] == f"{body} Checkpointed.body.fc1"
    assert seen["body.fc2.bias"] == f"{body} Checkpointed.body.fc2"


def test_parameter_of_a_parent_used_by_its_child_belongs_to_the_parent() -> None:
    class Parent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(4))
            self.child = Calls(lambda child, x: child.fc(x) * self.scale)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.child(x).cos()

    seen = active_at_accumulation(tidegauge.ModTracker(), Parent())
    assert seen["scale"] == "Parent"
    assert seen["child.fc.weight"] == "Parent Parent.child Parent.child.fc"


def test_leaf_that_is_not_a_parameter_has_no_owner() -> None:
    tracker = tidegauge.ModTracker()
    seen: list[str] = []
    x = inputs()
    x.register_post_accumulate_grad_hook(lambda _: seen.append(names(tracker.parents)))
    with tracker:
        train(Residual(), x)
    assert seen == ["-"]


def test_tensor_hook_runs_within_the_module_that_made_the_tensor() -> None:
    tracker = tidegauge.ModTracker()
    seen: list[str] = []

    def function(self: Any, x: torch.Tensor) -> torch.Tensor:
        for y in (x := x.sin(), x := self.fc(x), x := x.cos()):
            y.register_hook(lambda grad: seen.append(names(tracker.parents)))
        return x

    with tracker:
        train(Calls(function))
    assert seen == ["Calls", "Calls Calls.fc", "Calls"]


class Identity(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, seen: list[str], tracker: Tracker) -> torch.Tensor:
        ctx.seen, ctx.tracker = seen, tracker
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        ctx.seen.append(f"{names(ctx.tracker.parents)} {ctx.tracker.is_bw}")
        return grad.clone(), None, None


def test_backward_of_a_custom_function_runs_within_its_module() -> None:
    tracker = tidegauge.ModTracker()
    seen: list[str] = []
    model = Calls(lambda self, x: Identity.apply(self.fc(x), seen, tracker))
    with tracker:
        train(nn.Sequential(model, nn.Tanh()))
    assert seen == ["Sequential Sequential.0 True"]


def test_autograd_grad_inside_a_forward_runs_within_that_module() -> None:
    """A force field: the forward returns the gradient of an energy with respect to its input."""
    tracker = tidegauge.ModTracker()
    seen: list[str] = []

    def force(self: Any, x: torch.Tensor) -> torch.Tensor:
        energy = self.fc(x).sin()
        energy.register_hook(lambda grad: seen.append(names(tracker.parents)))
        (grad,) = torch.autograd.grad(energy.sum(), x, create_graph=True)
        seen.append(names(tracker.parents))
        return grad

    with tracker:
        train(nn.Sequential(Calls(force)), inputs().sin())
        assert names(tracker.parents) == "-"
    assert seen[:2] == ["Sequential Sequential.0"] * 2


def test_module_called_in_backward_is_inside_the_module_of_the_node() -> None:
    tracker = tidegauge.ModTracker()
    seen: list[str] = []
    helper = nn.Linear(4, 4)
    helper.register_forward_hook(lambda *_: seen.append(f"{names(tracker.parents)}"))

    class Calling(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            with torch.enable_grad():
                train(helper, grad.detach())
            seen.append(names(tracker.parents))
            return grad.clone()

    with tracker:
        train(nn.Sequential(Calls(lambda self, x: Calling.apply(self.fc(x)))))
        assert names(tracker.parents) == "-"
    assert seen == ["Linear Sequential Sequential.0", "Sequential Sequential.0"]


def gradient_penalty(model: nn.Module, x: torch.Tensor) -> None:
    (grad,) = torch.autograd.grad(model(x).tanh().sum(), x, create_graph=True)
    grad.square().sum().backward()


def test_grad_of_a_leaf_input_works() -> None:
    """WGAN's penalty."""
    with (
        UpstreamModTracker(),
        pytest.raises(RuntimeError, match="leaf node was passed to _will_engine_execute_node"),
    ):
        gradient_penalty(Net(), inputs())
    tracker = tidegauge.ModTracker()
    with tracker:
        gradient_penalty(Net(), inputs())
        assert names(tracker.parents) == "-"


def test_grad_of_a_leaf_input_runs_module_hooks_in_both_backwards() -> None:
    model = Net()
    hooks = ours(lambda: gradient_penalty(model, inputs())).hooks
    for module in ("Net", "Net.fc1", "Net.act", "Net.fc2"):
        # grad() with respect to the input, then backward() through its result.
        assert hooks.count(f"pre_bw {module}") == 2
        assert hooks.count(f"post_bw {module}") == 2


def test_grad_of_a_leaf_input_does_not_change_the_gradients() -> None:
    torch.manual_seed(0)
    model = Residual()
    grads = []
    for is_tracked in (False, True):
        tracker = tidegauge.ModTracker()
        tracker.register_user_hooks(*[lambda *_: None] * 4)
        model.zero_grad()
        if is_tracked:
            tracker.__enter__()
        gradient_penalty(model, inputs())
        if is_tracked:
            tracker.__exit__()
        grads.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    assert len(grads[0]) == len(grads[1]) > 0
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


def test_gradient_of_one_input_of_two_ends_the_module() -> None:
    """Only the gradient of one input is requested, so the module ends with that gradient."""
    tracker = tidegauge.ModTracker()
    ended: list[Any] = []
    tracker.register_user_hooks(post_bw_hook=lambda mod, grads: ended.append(grads))
    x, y = inputs(), inputs()
    model = Calls(lambda self, x, y: x.sin() * y.cos())
    with tracker:
        torch.autograd.grad(model(x, y).sum(), [y])
    assert len(ended) == 1


def test_retained_graph_has_its_hooks_in_each_backward() -> None:
    def scenario() -> nn.Module:
        model = nn.Tanh()
        loss = model(inputs()).sum()
        loss.backward(retain_graph=True)
        loss.backward()
        return model

    assert ours(scenario).hooks[2:] == ["pre_bw Tanh", "post_bw Tanh"] * 2


def test_hooks_run_only_for_modules_that_a_backward_reaches() -> None:
    def scenario() -> nn.Module:
        first, second = nn.Tanh(), nn.Sigmoid()
        reached, other = first(inputs()), second(inputs())
        del other
        reached.sum().backward()
        return nn.ModuleList([first, second])

    hooks = [line for line in ours(scenario).hooks if "_bw" in line]
    assert hooks == ["pre_bw Tanh", "post_bw Tanh"]


def test_old_graph_still_knows_its_modules() -> None:
    tracker = tidegauge.ModTracker()
    seen: list[str] = []
    model = Residual()
    with tracker:
        output = model(inputs())
        output.register_hook(lambda grad: seen.append(names(tracker.parents)))
        for _ in range(500):
            train(model)
        output.sum().backward()
    assert seen == ["Residual"]


@pytest.mark.filterwarnings("ignore:The module hierarchy")  # upstream's
def test_exception_in_backward_is_followed_by_a_good_step() -> None:
    fails = [True]

    class Failing(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            if fails[0]:
                raise RuntimeError("boom")
            return grad.clone()

    def after_failure(tracker: Tracker) -> list[str]:
        fails[0] = True
        model = Calls(lambda self, x: Failing.apply(self.fc(x)).cos())
        seen: list[str] = []
        with tracker:
            with pytest.raises(RuntimeError, match="boom"):
                train(model)
            seen.append(names(tracker.parents))
            fails[0] = False
            train(model)
            seen.append(names(tracker.parents))
        return seen

    assert after_failure(UpstreamModTracker()) == ["Calls", "Calls"]
    assert after_failure(tidegauge.ModTracker()) == ["-", "-"]


def test_exception_in_forward_leaves_no_open_backward() -> None:
    def ended(tracker: Tracker) -> int:
        model = nn.Linear(4, 4)
        calls: list[Any] = []
        tracker.register_user_hooks(post_bw_hook=lambda mod, grads: calls.append(mod))
        with tracker:
            with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
                model(torch.ones(2, 5))
            train(model)
            assert names(tracker.parents) == "-"
        return len(calls)

    assert ended(UpstreamModTracker()) == 2  # one for a call that made no node
    assert ended(tidegauge.ModTracker()) == 1
