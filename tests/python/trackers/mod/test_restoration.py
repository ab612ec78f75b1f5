# SPDX-License-Identifier: BSD-3-Clause
"""Torch is restored when the last tracker exits, whatever happened inside."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tidegauge
import torch
import torch.utils.checkpoint as checkpoint
from models import Calls, Checkpointed, Net, inputs, train
from observe import UpstreamModTracker, names, ours
from torch import nn
from torch.nn.modules import module as nn_module


def patched_places() -> list[Any]:
    """Values from the classes' own dictionaries, so that a staticmethod is compared as such."""
    return [
        nn.Module.__dict__["__call__"],
        checkpoint._recomputation_hook.__dict__.get("__enter__"),
        checkpoint._recomputation_hook.__dict__.get("__exit__"),
        checkpoint.CheckpointFunction.__dict__["backward"],
        len(nn_module._global_forward_pre_hooks),
        len(nn_module._global_forward_hooks),
        len(nn_module._global_forward_hooks_always_called),
    ]


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    before = patched_places()
    yield
    assert patched_places() == before


def is_patched() -> bool:
    return nn.Module.__call__.__module__.startswith("tidegauge")


def test_patches_exist_only_inside() -> None:
    assert not is_patched()
    with tidegauge.ModTracker():
        assert is_patched()
        train(Checkpointed(True))
        train(Checkpointed(False))
    assert not is_patched()


def test_nothing_is_put_on_the_model() -> None:
    model = Net()
    before = {key: dict(vars(mod)) for key, mod in model.named_modules()}
    tracker = tidegauge.ModTracker()
    with tracker:
        model(inputs())
    assert {key: dict(vars(mod)) for key, mod in model.named_modules()} == before


def test_torch_is_restored_after_an_exception() -> None:
    model, tracker = Calls(lambda self, x: 1 / 0), tidegauge.ModTracker()
    with pytest.raises(ZeroDivisionError), tracker:
        model(inputs())
    assert not is_patched()
    assert names(tracker.parents) == "-"


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_interruption_of_a_forward_leaves_nothing_open(error: type[BaseException]) -> None:
    def interrupted(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        raise error

    tracker = tidegauge.ModTracker()
    with tracker:
        with pytest.raises(error):
            nn.Sequential(nn.Tanh(), Calls(interrupted))(inputs())
        assert names(tracker.parents) == "-"
        train(Net())
    assert not is_patched()


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_interruption_of_a_recompute_leaves_nothing_open(use_reentrant: bool) -> None:
    is_second = [False]

    def body(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        if is_second[0]:
            raise KeyboardInterrupt
        is_second[0] = True
        return self.fc(x).sin()

    tracker = tidegauge.ModTracker()
    with tracker:
        with pytest.raises(KeyboardInterrupt):
            train(Checkpointed(use_reentrant, Calls(body)))
        assert names(tracker.parents) == "-"
        train(Checkpointed(use_reentrant))
        assert names(tracker.parents) == "-"


def test_nested_entry_of_one_tracker_ends_with_the_outer_exit() -> None:
    tracker = tidegauge.ModTracker()
    calls: list[str] = []
    tracker.register_user_hooks(pre_fw_hook=lambda mod, args: calls.append(type(mod).__name__))
    with tracker:
        with tracker:
            nn.Tanh()(inputs())
        nn.ReLU()(inputs())
    nn.GELU()(inputs())
    assert calls == ["Tanh", "ReLU"]


def test_nested_entry_of_upstream_keeps_its_first_hooks_forever() -> None:
    """Upstream's hooks still run for GELU, and never stop."""
    hooks = dict(nn_module._global_forward_pre_hooks), dict(nn_module._global_forward_hooks)
    always = dict(nn_module._global_forward_hooks_always_called)
    tracker = UpstreamModTracker()
    calls: list[str] = []
    tracker.register_user_hooks(post_fw_hook=lambda mod, *_: calls.append(type(mod).__name__))
    try:
        with tracker, tracker:
            pass
    except KeyError:
        pass
    nn.GELU()(inputs())
    for now, before in zip(
        (nn_module._global_forward_pre_hooks, nn_module._global_forward_hooks), hooks, strict=True
    ):
        for key in set(now) - set(before):
            del now[key]
    for key in set(nn_module._global_forward_hooks_always_called) - set(always):
        del nn_module._global_forward_hooks_always_called[key]
    assert calls == ["GELU"]


def test_two_trackers_may_leave_out_of_order() -> None:
    first, second = tidegauge.ModTracker(), tidegauge.ModTracker()
    model = Net()
    first.__enter__()
    second.__enter__()
    model(inputs())
    first.__exit__(None, None, None)
    assert is_patched()
    other = nn.Tanh()
    other(inputs())
    second.__exit__(None, None, None)
    assert not is_patched()
    assert first.get_known_fqn(model.fc1) == second.get_known_fqn(model.fc1) == "Net.fc1"
    assert first.get_known_fqn(other) is None
    assert second.get_known_fqn(other) == "Tanh"


def test_tracker_entered_inside_a_forward_sees_only_later_calls() -> None:
    tracker = tidegauge.ModTracker()
    seen: list[str] = []

    def function(self: Any, x: torch.Tensor) -> torch.Tensor:
        with tracker:
            seen.append(names(tracker.parents))
            x = self.fc(x)
            seen.append(tracker.get_known_fqn(self.fc) or "")
        return x

    train(Calls(function))
    assert seen == ["-", "Linear"]


def test_tracker_left_inside_a_forward_forgets_open_calls() -> None:
    tracker = tidegauge.ModTracker()

    def function(self: Any, x: torch.Tensor) -> torch.Tensor:
        tracker.__exit__()
        assert names(tracker.parents) == "-"
        return self.fc(x)

    tracker.__enter__()
    train(Calls(function))
    assert names(tracker.parents) == "-"


def test_tracker_left_between_forward_and_backward_still_knows_the_graph() -> None:
    tracker = tidegauge.ModTracker()
    seen: list[str] = []
    x = inputs().sin()
    x.register_hook(lambda grad: seen.append(names(tracker.parents)))
    hidden: list[torch.Tensor] = []

    def function(self: Any, x: torch.Tensor) -> torch.Tensor:
        hidden.append(self.fc(x))
        hidden[0].register_hook(lambda grad: seen.append(names(tracker.parents)))
        return hidden[0].cos()

    with tracker:
        loss = Calls(function)(x).sum()
    loss.backward()
    assert seen == ["Calls Calls.fc", "-"]
    assert not is_patched()


def replace_call(wrapper: Callable[..., Any]) -> Callable[[], None]:
    original = nn.Module.__call__
    nn.Module.__call__ = wrapper  # type: ignore[method-assign]

    def undo() -> None:
        nn.Module.__call__ = original  # type: ignore[method-assign]

    return undo


def counting_patch() -> tuple[list[str], Callable[[], None]]:
    calls: list[str] = []
    original = nn.Module.__call__

    def theirs(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        calls.append(type(self).__name__)
        return original(self, *args, **kwargs)

    return calls, replace_call(theirs)


def test_foreign_patch_made_before_ours_is_kept() -> None:
    calls, undo = counting_patch()
    theirs = nn.Module.__call__
    with tidegauge.ModTracker() as tracker:
        model = train(nn.Tanh())
        assert tracker.get_known_fqn(model) == "Tanh"
    assert nn.Module.__call__ is theirs
    undo()
    assert calls == ["Tanh"]


def test_foreign_patch_made_inside_ours_is_kept() -> None:
    tracker = tidegauge.ModTracker()
    with tracker:
        calls, undo = counting_patch()
        first = train(nn.Tanh())
        undo()
        second = train(nn.ReLU())
    assert calls == ["Tanh"]
    assert [tracker.get_known_fqn(first), tracker.get_known_fqn(second)] == ["Tanh", "ReLU"]


def test_foreign_patch_that_outlives_ours_keeps_working() -> None:
    tracker = tidegauge.ModTracker()
    with tracker:
        calls, undo = counting_patch()
        theirs = nn.Module.__call__
    assert nn.Module.__call__ is theirs
    train(nn.Tanh())  # theirs calls our wrapper, which does nothing now
    assert calls == ["Tanh"]
    with tracker:  # our wrapper is still below theirs
        assert nn.Module.__call__ is theirs
        second = train(nn.ReLU())
    assert tracker.get_known_fqn(second) == "ReLU"
    assert calls == ["Tanh", "ReLU"]
    undo()
    assert is_patched()  # they restored what they had found: our wrapper
    with tracker:
        third = train(nn.GELU())
    assert tracker.get_known_fqn(third) == "GELU"
    assert not is_patched()


def test_next_entry_works_after_a_foreign_patch_removed_ours() -> None:
    original = nn.Module.__call__
    tracker = tidegauge.ModTracker()
    with tracker:
        counting_patch()
    nn.Module.__call__ = original  # type: ignore[method-assign]
    with tracker:
        model = train(nn.Tanh())
    assert tracker.get_known_fqn(model) == "Tanh"


def test_foreign_patch_of_checkpoint_is_kept() -> None:
    found = checkpoint.CheckpointFunction.__dict__["backward"]
    original = checkpoint.CheckpointFunction.backward
    calls: list[str] = []

    @staticmethod  # type: ignore[misc]
    def theirs(ctx: Any, *args: Any) -> Any:
        calls.append("backward")
        return original(ctx, *args)

    checkpoint.CheckpointFunction.backward = theirs
    try:
        mine = ours(lambda: train(Checkpointed(True)))
        assert checkpoint.CheckpointFunction.__dict__["backward"] is theirs
    finally:
        checkpoint.CheckpointFunction.backward = found
    assert calls == ["backward"]
    assert "pre_bw Checkpointed.body.fc1" in mine.hooks
