# SPDX-License-Identifier: BSD-3-Clause
"""Registration, arguments and errors of the four user hooks; bad input."""

from __future__ import annotations

import gc
import warnings
import weakref
from typing import Any

import pytest
import tidegauge
import torch
from models import Calls, Net, Residual, inputs, train
from observe import Tracker, UpstreamModTracker, names
from torch import nn

BOTH = pytest.mark.parametrize("make", [UpstreamModTracker, tidegauge.ModTracker])
SLOTS = ["pre_fw_hook", "post_fw_hook", "pre_bw_hook", "post_bw_hook"]


def nothing(*args: Any) -> None:
    pass


@BOTH
@pytest.mark.parametrize("slot", SLOTS)
def test_registering_a_set_hook_again_is_an_assertion_error(make: type[Tracker], slot: str) -> None:
    tracker = make()
    tracker.register_user_hooks(**{slot: nothing})
    with pytest.raises(AssertionError) as error:
        tracker.register_user_hooks(**{slot: nothing})
    assert str(error.value) == (
        f"Only one {slot} can be registered at a time Clear the existing hook by calling "
        "``clear_user_hooks`` before registering a new one"
    )
    tracker.clear_user_hooks()
    tracker.register_user_hooks(**{slot: nothing})


@BOTH
def test_none_clears_a_hook(make: type[Tracker]) -> None:
    calls: list[str] = []
    tracker = make()
    tracker.register_user_hooks(pre_fw_hook=lambda *_: calls.append("pre"))
    tracker.register_user_hooks(post_fw_hook=lambda *_: calls.append("post"))
    with tracker:
        nn.Tanh()(inputs())
    assert calls == ["post"]


@BOTH
def test_earlier_hooks_are_set_when_a_later_one_raises(make: type[Tracker]) -> None:
    calls: list[str] = []
    tracker = make()
    tracker.register_user_hooks(post_fw_hook=lambda *_: calls.append("old post"))
    with pytest.raises(AssertionError, match="post_fw_hook"):
        tracker.register_user_hooks(lambda *_: calls.append("new pre"), nothing)
    with tracker:
        nn.Tanh()(inputs())
    assert calls == ["new pre", "old post"]


@BOTH
def test_cleared_hooks_are_not_called(make: type[Tracker]) -> None:
    calls: list[Any] = []
    tracker = make()
    tracker.register_user_hooks(*[lambda *args: calls.append(args)] * 4)
    tracker.clear_user_hooks()
    with tracker:
        train(Net())
    assert calls == []


@BOTH
def test_forward_hooks_get_module_inputs_and_outputs(make: type[Tracker]) -> None:
    model, x = nn.Tanh(), inputs()
    seen: dict[str, Any] = {}
    tracker = make()
    tracker.register_user_hooks(
        lambda mod, args: seen.update(pre=(mod, args)),
        lambda mod, args, output: seen.update(post=(mod, args, output)),
    )
    with tracker:
        y = model(x)
    assert seen["pre"][0] is model
    assert seen["pre"][1][0] is x
    assert seen["post"][0] is model
    assert seen["post"][1][0] is x
    assert seen["post"][2] is y


@BOTH
def test_output_is_none_when_the_forward_raised(make: type[Tracker]) -> None:
    outputs: list[Any] = []
    tracker = make()
    tracker.register_user_hooks(post_fw_hook=lambda mod, args, output: outputs.append(output))
    with tracker, pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        nn.Linear(4, 4)(torch.ones(2, 5))
    assert outputs == [None]


@BOTH
def test_backward_hooks_get_the_gradients(make: type[Tracker]) -> None:
    """d(3 sum(tanh x)) at x = 0: 3 at the output and 3 at the input."""
    seen: dict[str, Any] = {}
    tracker = make()
    tracker.register_user_hooks(
        pre_bw_hook=lambda mod, grads: seen.update(pre=grads),
        post_bw_hook=lambda mod, grads: seen.update(post=grads),
    )
    x = torch.zeros(2, 4, requires_grad=True)
    with tracker:
        (3 * nn.Tanh()(x)).sum().backward()
    (grad_output,) = seen["pre"]
    ((grad_input,),) = seen["post"]
    assert torch.equal(grad_output, torch.full((2, 4), 3.0))
    assert torch.equal(grad_input, torch.full((2, 4), 3.0))


@BOTH
def test_no_gradients_are_passed_if_no_input_needs_one(make: type[Tracker]) -> None:
    seen: list[Any] = []
    tracker = make()
    tracker.register_user_hooks(post_bw_hook=lambda mod, grads: seen.append(grads))
    with tracker:
        train(nn.Linear(4, 4), inputs(requires_grad=False))
    assert seen == [()]


@BOTH
def test_unused_input_does_not_delay_the_end(make: type[Tracker]) -> None:
    order: list[str] = []
    first, second = nn.Tanh(), Calls(lambda self, x, unused: self.fc(x))
    tracker = make()
    tracker.register_user_hooks(
        pre_bw_hook=lambda mod, grads: order.append(f"pre {type(mod).__name__}"),
        post_bw_hook=lambda mod, grads: order.append(f"post {type(mod).__name__}"),
    )
    with tracker:
        second(first(inputs()), inputs()).sum().backward()
    assert order.index("post Calls") < order.index("post Tanh")


@BOTH
def test_dead_module_is_none_in_backward(make: type[Tracker]) -> None:
    seen: list[Any] = []
    tracker = make()
    tracker.register_user_hooks(
        pre_bw_hook=lambda mod, grads: seen.append(mod),
        post_bw_hook=lambda mod, grads: seen.append(mod),
    )
    with tracker:
        model = nn.Tanh()
        reference = weakref.ref(model)
        loss = model(inputs()).sum()
        del model
        gc.collect()
        assert reference() is None
        loss.backward()
    assert seen == [None, None]


def test_dead_module_keeps_its_name_in_backward() -> None:
    tracker = tidegauge.ModTracker()
    seen: list[str] = []
    tracker.register_user_hooks(pre_bw_hook=lambda mod, g: seen.append(names(tracker.parents)))
    with tracker:
        model = Residual()
        loss = model(inputs()).sum()
        del model
        gc.collect()
        loss.backward()
    assert seen == ["Residual", "Residual Residual.right", "Residual Residual.left"]


def test_error_of_a_pre_forward_hook_reaches_the_caller_and_leaves_nothing_open() -> None:
    tracker = tidegauge.ModTracker()

    def refuse(mod: nn.Module, args: Any) -> None:
        raise ValueError("no")

    with tracker:
        tracker.register_user_hooks(pre_fw_hook=refuse)
        with pytest.raises(ValueError, match="no"):
            Net()(inputs())
        assert names(tracker.parents) == "-"
        tracker.clear_user_hooks()
        train(Net())
        assert names(tracker.parents) == "-"


def test_error_of_a_post_forward_hook_reaches_the_caller_and_leaves_nothing_open() -> None:
    tracker = tidegauge.ModTracker()

    def refuse(mod: nn.Module, args: Any, output: Any) -> None:
        raise ValueError("no")

    with tracker:
        tracker.register_user_hooks(post_fw_hook=refuse)
        with pytest.raises(ValueError, match="no"):
            nn.Tanh()(inputs())
        assert names(tracker.parents) == "-"


def test_error_of_the_forward_wins_over_that_of_its_post_hook() -> None:
    tracker = tidegauge.ModTracker()

    def refuse(mod: nn.Module, args: Any, output: Any) -> None:
        raise ValueError("no")

    tracker.register_user_hooks(post_fw_hook=refuse)
    with (
        tracker,
        pytest.warns(UserWarning, match=r"post_fw_hook raised ValueError\('no'\)"),
        pytest.raises(RuntimeError, match="shapes cannot be multiplied"),
    ):
        nn.Linear(4, 4)(torch.ones(2, 5))


@pytest.mark.parametrize("slot", ["pre_bw_hook", "post_bw_hook"])
def test_error_of_a_backward_hook_reaches_the_caller_and_the_next_step_is_good(slot: str) -> None:
    tracker = tidegauge.ModTracker()

    def refuse(mod: nn.Module, grads: Any) -> None:
        raise ValueError("no")

    calls: list[str] = []
    with tracker:
        tracker.register_user_hooks(**{slot: refuse})
        with pytest.raises(ValueError, match="no"):
            train(Net())
        tracker.clear_user_hooks()
        tracker.register_user_hooks(**{slot: lambda mod, grads: calls.append(type(mod).__name__)})
        model = train(Net())
        assert names(tracker.parents) == "-"
    assert sorted(calls) == sorted(type(mod).__name__ for mod in model.modules())


def test_hook_may_clear_itself() -> None:
    tracker = tidegauge.ModTracker()
    calls: list[str] = []

    def once(mod: nn.Module, args: Any) -> None:
        calls.append(type(mod).__name__)
        tracker.clear_user_hooks()

    tracker.register_user_hooks(pre_fw_hook=once)
    with tracker:
        Net()(inputs())
    assert calls == ["Net"]


def test_module_with_keyword_inputs_ends_in_time() -> None:
    """As with positional inputs: the module ends when their gradients have arrived."""
    tracker = tidegauge.ModTracker()
    order: list[str] = []
    first, second = nn.Tanh(), nn.Tanh()
    tracker.register_user_hooks(
        pre_bw_hook=lambda mod, g: order.append(f"pre {tracker.get_known_fqn(mod)}"),
        post_bw_hook=lambda mod, g: order.append(f"post {tracker.get_known_fqn(mod)}"),
    )
    with tracker:
        second(input=first(input=inputs()).sin()).sum().backward()
    assert order == ["pre Tanh#2", "post Tanh#2", "pre Tanh", "post Tanh"]


@BOTH
def test_exit_without_entry_is_an_attribute_error(make: type[Tracker]) -> None:
    with pytest.raises(AttributeError, match="_fw_pre_handle"):
        make().__exit__(None, None, None)


def test_exit_without_entry_says_what_to_do() -> None:
    with pytest.raises(AttributeError, match="use it as `with tracker:`, or call `__enter__`"):
        tidegauge.ModTracker().__exit__()


@BOTH
def test_unknown_module_has_no_name(make: type[Tracker]) -> None:
    assert make().get_known_fqn(nn.Tanh()) is None


@BOTH
@pytest.mark.parametrize("thing", [3, "Net", None])
def test_object_that_is_not_a_module_is_a_type_error(make: type[Tracker], thing: Any) -> None:
    with pytest.raises(TypeError, match="cannot create weak reference"):
        make().get_known_fqn(thing)


def recursive() -> nn.Module:
    def function(self: Any, x: torch.Tensor, depth: int = 2) -> torch.Tensor:
        return self(x.sin(), depth - 1) if depth else self.fc(x)

    return Calls(function)


def test_recursion_warns_without_changing_the_format_of_warnings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = warnings.formatwarning
    text = (
        "The module hierarchy tracking maybe be messed up."
        " Please file a bug to PyTorch, if it is the case."
    )
    for make, is_untouched in ((UpstreamModTracker, False), (tidegauge.ModTracker, True)):
        monkeypatch.setattr(warnings, "formatwarning", original)
        model = recursive()
        with make(), pytest.warns(UserWarning, match="hierarchy tracking") as caught:
            train(model)
        assert {str(warning.message) for warning in caught} == {text}
        assert (warnings.formatwarning is original) == is_untouched


@BOTH
def test_recursion_warning_that_is_an_error_is_raised(make: type[Tracker]) -> None:
    with make(), warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="hierarchy tracking"):
            train(recursive())


def test_recursion_warning_that_is_an_error_leaves_nothing_open() -> None:
    tracker = tidegauge.ModTracker()
    with tracker, warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="hierarchy tracking"):
            train(recursive())
        assert names(tracker.parents) == "-"
    assert tracker._native.failure_count == 0


@BOTH
def test_parents_of_a_new_tracker_is_global(make: type[Tracker]) -> None:
    assert make().parents == {"Global"}
