# SPDX-License-Identifier: BSD-3-Clause
"""Creating and entering a MemTracker, external tensors and snapshots, compared with upstream."""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any

import pytest
import tidegauge
import tidegauge.mem_tracker as ours
import torch
import torch.distributed._tools.mem_tracker as upstream
from both_mem_trackers import CPU, assert_same, error_of, mlp, train_step
from models import Checkpointed, inputs
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakIdKeyDictionary

# Making and entering


def test_class_is_a_dispatch_mode_by_name() -> None:
    assert issubclass(ours.MemTracker, TorchDispatchMode)
    tracker = ours.MemTracker()
    # Upstream's tracker leaves the flag on where it fails.
    was_in_mode = torch.utils._python_dispatch.is_in_torch_dispatch_mode()
    with tracker:
        assert torch._C._len_torch_dispatch_stack() == 0
        assert torch.utils._python_dispatch.is_in_torch_dispatch_mode() == was_in_mode


def test_tracker_that_was_never_entered_is_empty() -> None:
    def describe(tool: ModuleType) -> Any:
        tracker = tool.MemTracker()
        return (
            isinstance(tracker.memory_tracking, WeakIdKeyDictionary),
            len(tracker.memory_tracking),
            tracker.get_tracker_snapshot(),
            tracker.get_tracker_snapshot("peak"),
            (tracker._curr_mem_snap, tracker._peak_mem, tracker._peak_mem_snap),
            (tracker._depth, tracker._in_opt, tracker._in_ac, tracker._ref_class.__name__),
        )

    assert_same(describe)


def test_arguments_are_keyword_only() -> None:
    parameters = inspect.signature(ours.MemTracker).parameters
    assert {name: parameter.default for name, parameter in parameters.items()} == {
        "strict": False,
        "allocator": False,
        "record": None,
        "stacks": "none",
    }
    assert {parameter.kind for parameter in parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}


def test_entry_returns_the_tracker_and_counts_depth() -> None:
    def describe(tool: ModuleType) -> Any:
        tracker = tool.MemTracker()
        depths = [tracker._depth]
        with tracker as entered:
            assert entered is tracker
            depths.append(tracker._depth)
            with tracker:
                depths.append(tracker._depth)
                model = nn.Tanh()
                model(inputs())
            depths.append(tracker._depth)
            other = nn.ReLU()
            other(inputs())
        nn.GELU()(inputs())
        assert model
        return [*depths, tracker._depth], [type(k).__name__ for k in tracker.memory_tracking]

    assert assert_same(describe) == ([0, 1, 2, 1, 0], ["Tanh", "ReLU"])


def test_exit_without_entry_is_an_error() -> None:
    mine = error_of(lambda: ours.MemTracker().__exit__(None, None, None))
    theirs = error_of(lambda: upstream.MemTracker().__exit__(None, None, None))
    assert mine.startswith(theirs)
    assert "without being entered" in mine


def test_exit_without_entry_is_harmless_unlike_upstream() -> None:
    tracker = ours.MemTracker()
    with pytest.raises(AttributeError):
        tracker.__exit__()
    model = train_step(tracker, mlp())
    assert model in tracker.memory_tracking


def test_exit_does_not_swallow_an_exception() -> None:
    def describe(tool: ModuleType) -> Any:
        tracker = tool.MemTracker()
        with pytest.raises(ZeroDivisionError), tracker:
            raise ZeroDivisionError
        return tracker._depth, tracker.__enter__() is tracker, tracker.__exit__(None, None, None)

    assert assert_same(describe) == (0, True, None)


class Counting(ours.MemTracker):
    """Counts operators and leaves the rest to the base class, like CommDebugMode."""

    def __init__(self) -> None:
        super().__init__()
        self.operators: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operators.append(str(func))
        return super().__torch_dispatch__(func, types, args, kwargs)


def test_subclass_that_overrides_torch_dispatch_is_pushed() -> None:
    tracker = Counting()
    with tracker, tracker:
        assert torch._C._len_torch_dispatch_stack() == 2
        x = torch.ones(5)
    assert torch._C._len_torch_dispatch_stack() == 0
    assert set(tracker.operators) == {"aten.ones.default"}
    assert tracker.get_tracker_snapshot()[x.device]["Activation"] == 20


def test_subclass_that_overrides_torch_dispatch_gets_local_tensors_of_a_dtensor() -> None:
    from torch.distributed.tensor import DTensor

    assert ours.MemTracker().__torch_dispatch__(None, (DTensor,)) is NotImplemented
    assert ours.MemTracker().__torch_dispatch__(max, (), (1, 2)) == 2


def test_subclass_that_overrides_nothing_is_not_pushed() -> None:
    class Quiet(ours.MemTracker):
        pass

    with Quiet():
        assert torch._C._len_torch_dispatch_stack() == 0


def test_mod_tracker_attribute_is_ours_and_has_the_names() -> None:
    def describe(tool: ModuleType) -> Any:
        tracker = tool.MemTracker()
        assert type(tracker._mod_tracker) is tool.ModTracker
        model = train_step(tracker, mlp())
        return (
            [tracker._mod_tracker.get_known_fqn(module) for module in model.modules()],
            tracker._mod_tracker.parents,
            tracker._mod_tracker.is_bw,
        )

    names, *_ = assert_same(describe)
    assert names == ["Sequential", "Sequential.0", "Sequential.1", "Sequential.2"]
    assert isinstance(ours.MemTracker()._mod_tracker, tidegauge.ModTracker)


# External tensors


def test_track_external_labels_each_kind_of_object() -> None:
    def describe(tool: ModuleType) -> list[Any]:
        tracker, model = tool.MemTracker(), nn.BatchNorm1d(4)
        model(inputs()).sum().backward()
        optimizer = torch.optim.Adam(model.parameters())
        optimizer.step()
        tensors = torch.ones(3), torch.ones(5), torch.ones(7)
        seen: list[Any] = []
        for external in (
            (),
            (None,),
            ([tensors[0], {"key": (tensors[1], None)}],),
            (model,),
            (optimizer,),
            ({"model": model, "others": tensors},),
        ):
            assert tracker.track_external(*external) is None
            seen.append(tracker.get_tracker_snapshot())
        return [*seen, tracker.get_tracker_snapshot("peak")]

    *_, last, peak = assert_same(describe)
    assert list(last[CPU].items()) == [
        ("Parameter", 32),
        ("Buffer", 40),  # two of 4 floats, and a counter
        ("Gradient", 32),
        ("Activation", 0),
        ("Temp", 0),
        ("Optstate", 72),  # two of 4 floats and a step for each of two parameters
        ("Other", 60),
        ("Total", 236),
    ]
    assert peak == {}


def test_last_label_wins() -> None:
    def describe(tool: ModuleType) -> Any:
        tracker, model = tool.MemTracker(), nn.Linear(4, 4, bias=False)
        tracker.track_external(model.weight, model)
        first = tracker.get_tracker_snapshot()
        tracker.track_external(model, model.weight)
        return first, tracker.get_tracker_snapshot()

    first, second = assert_same(describe)
    assert first[CPU]["Parameter"] == second[CPU]["Other"] == 64


@pytest.mark.parametrize("thing", ["text", 3, object, [torch.ones(1), {"a": 2.5}]])
def test_object_that_cannot_be_tracked_is_refused(thing: Any) -> None:
    def describe(tool: ModuleType) -> Any:
        tracker = tool.MemTracker()
        return error_of(lambda: tracker.track_external(thing)), tracker.get_tracker_snapshot()

    error, _ = assert_same(describe)
    assert error.startswith("TypeError: Object of type <class '")


def test_bytes_are_freed_with_the_tensor() -> None:
    def describe(tool: ModuleType) -> Any:
        tracker, tensor = tool.MemTracker(), torch.ones(3)
        tracker.track_external(tensor)
        del tensor
        return tracker.get_tracker_snapshot()

    assert assert_same(describe) == {}


# Snapshots


def test_snapshot_is_a_copy_indexed_by_enum_or_text() -> None:
    def describe(tool: ModuleType) -> Any:
        tracker, tensor = tool.MemTracker(), torch.ones(3)
        tracker.track_external(tensor)
        with tracker:
            kept = torch.ones(4)
        seen = []
        for which in ("current", "peak"):
            snapshot = tracker.get_tracker_snapshot(which)
            (sizes,) = snapshot.values()
            assert sizes[tool._MemRefType.OTH] == sizes["Other"] == 12
            assert [type(key) for key in sizes] == [tool._MemRefType] * 7 + [str]
            sizes.clear()
            seen.append(tracker.get_tracker_snapshot(which))
        return seen, [list(sizes) for snapshot in seen for sizes in snapshot.values()], kept.shape

    assert_same(describe)


@pytest.mark.parametrize("kind", ["foo", "", "Peak", None])
def test_snapshot_of_an_unknown_type_is_refused(kind: Any) -> None:
    error = assert_same(lambda tool: error_of(lambda: tool.MemTracker().get_tracker_snapshot(kind)))
    assert error == f"ValueError: Invalid type {kind}"


def test_device_without_bytes_is_left_out() -> None:
    def describe(tool: ModuleType) -> Any:
        tracker = tool.MemTracker()
        with tracker:
            tensor, empty = torch.ones(2), torch.empty(0)
            before = tracker.get_tracker_snapshot()
            tensor.untyped_storage().resize_(0)
            return before, tracker.get_tracker_snapshot(), empty.shape

    before, after, _ = assert_same(describe)
    assert (set(before), after) == ({CPU}, {})


def test_each_device_has_its_own_entry() -> None:
    def describe(tool: ModuleType) -> Any:
        tracker = tool.MemTracker()
        with tracker:
            tensors = torch.ones(6, device="meta"), torch.ones(2)
            return tracker.get_tracker_snapshot(), len(tensors)

    snapshot, _ = assert_same(describe)
    assert list(snapshot) == [torch.device("meta"), CPU]


def test_peak_restarts_at_each_outermost_entry_and_stays_after_exit() -> None:
    def describe(tool: ModuleType) -> list[int]:
        tracker, outside = tool.MemTracker(), torch.ones(2)
        tracker.track_external(outside)
        seen = []
        for size in (100, 10):
            with tracker:
                torch.ones(size)
                with tracker:
                    pass
                seen.append(tracker._peak_mem[CPU])
            seen.append(tracker.get_tracker_snapshot("peak")[CPU]["Total"])
        return seen

    assert assert_same(describe) == [408, 408, 48, 48]


def test_attributes_equal_the_snapshots() -> None:
    tracker = ours.MemTracker()
    model = train_step(tracker, mlp())
    assert tracker._curr_mem_snap == tracker.get_tracker_snapshot()
    assert tracker._peak_mem_snap == tracker.get_tracker_snapshot("peak")
    assert tracker._peak_mem == {CPU: tracker._peak_mem_snap[CPU]["Total"]}
    assert model


def test_flag_is_set_within_an_optimizer_step() -> None:
    def describe(tool: ModuleType) -> list[bool]:
        tracker, model = tool.MemTracker(), nn.Linear(4, 4)
        seen: list[bool] = []

        class Watching(torch.optim.SGD):
            @torch.no_grad()
            def step(self, closure: Any = None) -> None:
                seen.append(tracker._in_opt)

        optimizer = Watching(model.parameters())
        with tracker:
            seen.append(tracker._in_opt)
            optimizer.step()
            seen.append(tracker._in_opt)
        return seen

    assert assert_same(describe) == [False, True, False]


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_flag_is_set_within_a_recompute(use_reentrant: bool) -> None:
    def describe(tool: ModuleType) -> list[bool]:
        tracker = tool.MemTracker()
        seen: list[bool] = []
        model = Checkpointed(use_reentrant)
        model.body.act.register_forward_hook(lambda *_: seen.append(tracker._in_ac))
        train_step(tracker, model)
        return [*seen, tracker._in_ac]

    assert assert_same(describe) == [False, True, False]
