# SPDX-License-Identifier: BSD-3-Clause
"""What code written for torch.distributed._tools.mem_tracker leans on, the same in both."""

from __future__ import annotations

import copy
import enum
import gc
import inspect
import os
import pickle
import subprocess
import sys
import weakref
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import tidegauge
import tidegauge.common_utils
import tidegauge.mem_tracker as ours
import torch
import torch.distributed._tools.mem_tracker as upstream
from models import Checkpointed, Twice, inputs
from torch import nn
from torch.distributed._tools import common_utils, ilp_utils
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakIdKeyDictionary

CPU = torch.device("cpu")


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))


def assert_same(body: Callable[[ModuleType], Any]) -> Any:
    """Runs it with both and returns what they agree on."""
    mine = body(ours)
    assert mine == body(upstream)
    return mine


def error_of(body: Callable[[], Any]) -> str:
    with pytest.raises(Exception) as caught:  # noqa: PT011  (which one is compared)
        body()
    return f"{type(caught.value).__name__}: {caught.value}"


def strict(tool: ModuleType) -> Any:
    return ours.MemTracker(strict=True) if tool is ours else upstream.MemTracker()


def train_step(tracker: Any, model: nn.Module) -> nn.Module:
    with tracker:
        model(inputs()).sum().backward()
    return model


# The module's names


def test_all() -> None:
    assert assert_same(lambda tool: tool.__all__) == ["MemTracker"]
    assert tidegauge.MemTracker is ours.MemTracker
    assert "MemTracker" in tidegauge.__all__


@pytest.mark.parametrize(
    "name",
    [
        *("_MemRefType", "_ModMemStats", "_ModState", "_RefType", "_State", "_UpdateType"),
        *("_WeakRefInfo", "_TOTAL_KEY", "_PYTORCH_MIN_ALLOCATE", "_get_mem_divisor"),
        *("_rounding_fn", "_print_snapshot", "_print_snapshot_tabular", "_print_state_snapshots"),
        *("_print_state_snapshots_tabular", "get_untyped_storages", "ModTracker"),
    ],
)
def test_name_that_others_import(name: str) -> None:
    mine, theirs = getattr(ours, name), getattr(upstream, name)
    if callable(theirs) and not isinstance(theirs, type):
        assert list(inspect.signature(mine).parameters) == list(
            inspect.signature(theirs).parameters
        )
    elif not callable(theirs):
        assert mine == theirs


@pytest.mark.parametrize(("value", "expected"), [(None, 512), ("0", 512), ("1", 1), ("2", 1)])
def test_rounding_of_cuda_follows_the_environment(value: str | None, expected: int) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "PYTORCH_NO_CUDA_MEMORY_CACHING"}
    if value is not None:
        environment["PYTORCH_NO_CUDA_MEMORY_CACHING"] = value
    script = """if True:
        import tidegauge.mem_tracker as ours
        import torch.distributed._tools.mem_tracker as upstream
        print(ours._PYTORCH_MIN_ALLOCATE, upstream._PYTORCH_MIN_ALLOCATE)"""
    text = subprocess.check_output([sys.executable, "-c", script], env=environment, text=True)
    assert text.split() == [str(expected)] * 2


def test_product_does_not_import_what_it_replaces() -> None:
    script = """if True:
        import sys, tidegauge
        print([name for name in sys.modules if name.startswith("torch.distributed._tools")])"""
    assert subprocess.check_output([sys.executable, "-c", script], text=True) == "[]\n"


# Enums


ENUMS = ["_RefType", "_State", "_MemRefType", "_ModState", "_UpdateType"]


@pytest.mark.parametrize("name", ENUMS)
def test_enum_has_the_same_members_in_the_same_order(name: str) -> None:
    def describe(tool: ModuleType) -> Any:
        kind = getattr(tool, name)
        return (
            [(member.name, member.value, str(member), repr(member)) for member in kind],
            [base.__name__ for base in kind.__mro__],
        )

    assert_same(describe)


@pytest.mark.parametrize("name", ["_MemRefType", "_ModState"])
def test_enum_member_is_its_text(name: str) -> None:
    for mine, theirs in zip(getattr(ours, name), getattr(upstream, name), strict=True):
        assert mine == mine.value == theirs
        assert hash(mine) == hash(mine.value) == hash(theirs)
        assert {mine: 1}[mine.value] == {mine.value: 1}[mine] == {mine: 1}[theirs] == 1
        assert f"{mine}" == f"{theirs}"
        assert isinstance(mine, str)
        assert pickle.loads(pickle.dumps(mine)) is copy.deepcopy(mine) is mine


def test_update_type_is_no_text() -> None:
    assert not issubclass(ours._UpdateType, str)
    assert [member.value for member in ours._UpdateType] == [1, 2, 3, 4]


def test_enums_can_be_extended_as_the_sharded_tracker_does() -> None:
    kind = enum.Enum("kind", {"A": "a"}, type=ours._RefType)  # type: ignore[misc]
    assert kind["A"] == "a"


# Data classes


@pytest.mark.parametrize("device", ["cpu", "meta", "cuda", "cuda:1", "xpu"])
@pytest.mark.parametrize("size", [0, 1, 100, 512, 513, 2**40 + 1])
@pytest.mark.parametrize("element_size", [1, 4])
def test_weak_ref_info(size: int, element_size: int, device: str) -> None:
    def describe(tool: ModuleType) -> dict[str, Any]:
        kind = tool._MemRefType.ACT
        return vars(tool._WeakRefInfo(size, element_size, torch.device(device), kind))

    described = assert_same(describe)
    assert set(described) == {"size", "element_size", "device", "reftype", "mem_consumed"}


def test_weak_ref_info_by_eye() -> None:
    def consumed(size: int, device: str) -> int:
        info = ours._WeakRefInfo(size, 1, torch.device(device), ours._MemRefType.ACT)
        return info.mem_consumed

    assert [consumed(size, "cuda") for size in (0, 100, 513)] == [0, 512, 1024]
    assert consumed(100, "xpu") == 100


def test_weak_ref_info_follows_a_resize() -> None:
    def describe(tool: ModuleType) -> list[int]:
        storage = torch.UntypedStorage(100)
        info = tool._WeakRefInfo(100, 1, torch.device("cuda"), tool._MemRefType.ACT)
        seen = [info.update_mem_consumed(storage)]
        storage.resize_(600)
        return [*seen, info.mem_consumed, info.update_mem_consumed(storage), info.size]

    assert assert_same(describe) == [512, 512, 1024, 600]


def test_create_winfo_calls_back_when_the_storage_dies() -> None:
    def describe(tool: ModuleType) -> list[Any]:
        told: list[Any] = []
        storage = torch.UntypedStorage(12)
        info, ref = tool._WeakRefInfo.create_winfo(
            storage, CPU, tool._MemRefType.TEMP, lambda *args: told.append(args)
        )
        assert isinstance(info, tool._WeakRefInfo)
        assert isinstance(ref, weakref.ref)
        assert ref() is storage
        assert not told
        del storage
        assert [(winfo is info, which is ref) for winfo, which in told] == [(True, True)]
        return [vars(info), ref()]

    assert_same(describe)


def test_create_winfo_without_callback() -> None:
    def describe(tool: ModuleType) -> Any:
        storage = torch.UntypedStorage(12)
        info, ref = tool._WeakRefInfo.create_winfo(storage, CPU, tool._MemRefType.TEMP)
        del storage
        return info.mem_consumed, ref()

    assert assert_same(describe) == (12, None)


def test_mod_mem_stats_have_no_sizes_until_these_are_known() -> None:
    assert assert_same(lambda tool: vars(tool._ModMemStats("Net.fc"))) == {
        "mod_fqn": "Net.fc",
        "local_peak": {},
        "snapshots": {},
    }
    assert not hasattr(ours._ModMemStats("Net"), "output_mem")


# Storages of tensors


TENSORS: dict[str, Callable[[], torch.Tensor]] = {
    "plain": lambda: torch.ones(3),
    "view": lambda: torch.ones(3)[1:],
    "meta": lambda: torch.ones(3, device="meta"),
    "parameter": lambda: nn.Parameter(torch.ones(3)),
    "jagged": lambda: torch.nested.nested_tensor(
        [torch.ones(2), torch.ones(3)], layout=torch.jagged
    ),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(3), 1.0, 0, torch.qint8),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", TENSORS)
def test_storages(name: str) -> None:
    tensor = TENSORS[name]()
    mine = ours.get_untyped_storages(tensor)
    assert mine == common_utils.get_untyped_storages(tensor)
    assert mine
    assert all(isinstance(storage, torch.UntypedStorage) for storage in mine)
    assert tidegauge.common_utils.get_untyped_storages is ours.get_untyped_storages


def bytes_of(tensor: torch.Tensor) -> list[int]:
    return sorted(storage.nbytes() for storage in ours.get_untyped_storages(tensor))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_storages_of_sparse_tensors() -> None:
    plain, other = torch.tensor([0, 1, 2]), torch.tensor([0, 1])
    floats, blocks = torch.ones(2), torch.ones(2, 2, 2)
    assert bytes_of(torch.ones(3).to_sparse()) == [12, 24]
    assert bytes_of(torch.sparse_csr_tensor(plain, other, floats)) == [8, 16, 24]
    assert bytes_of(torch.sparse_csc_tensor(plain, other, floats).requires_grad_()) == [8, 16, 24]
    assert bytes_of(torch.sparse_bsr_tensor(plain, other, blocks)) == [16, 24, 32]
    assert bytes_of(torch.sparse_bsc_tensor(plain, other, blocks)) == [16, 24, 32]


def test_storages_within_a_functional_transform() -> None:
    seen: list[list[int]] = []

    def function(x: torch.Tensor) -> torch.Tensor:
        seen.append(bytes_of(x))
        return x.sum()

    torch.func.grad(function)(torch.ones(3))
    torch.func.vmap(function)(torch.ones(2, 3))
    torch.func.vmap(torch.func.grad(function))(torch.ones(2, 3))
    assert seen == [[12], [24], [24]]


def test_opaque_tensor_has_no_storage() -> None:
    if torch.backends.mkldnn.is_available():
        assert ours.get_untyped_storages(torch.ones(3).to_mkldnn()) == set()


def test_storages_of_what_is_no_tensor() -> None:
    def describe(tool: ModuleType) -> Any:
        with pytest.warns(UserWarning, match="Expected a tensor") as caught:
            storages = tool.get_untyped_storages(None)
        assert caught[0].filename == __file__
        return storages, [str(warning.message) for warning in caught]

    assert assert_same(describe)[1] == [
        "Expected a tensor or a traceable wrapper-subclass of tensor, but got <class 'NoneType'>"
    ]


# Making and entering


def test_class_is_a_dispatch_mode_by_name() -> None:
    assert issubclass(ours.MemTracker, TorchDispatchMode)
    tracker = ours.MemTracker()
    with tracker:
        assert torch._C._len_torch_dispatch_stack() == 0
        assert not torch.utils._python_dispatch.is_in_torch_dispatch_mode()


def test_tracker_that_was_never_entered() -> None:
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


@pytest.mark.parametrize(
    "options", [{"allocator": True}, {"record": "run.tide"}, {"stacks": "python"}]
)
def test_option_of_a_later_version_is_refused_by_name(options: dict[str, Any]) -> None:
    ((name, value),) = options.items()
    with pytest.raises(NotImplementedError, match=f"{name}={value!r}"):
        ours.MemTracker(**options)


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


def test_exit_without_entry() -> None:
    mine = error_of(lambda: ours.MemTracker().__exit__(None, None, None))
    theirs = error_of(lambda: upstream.MemTracker().__exit__(None, None, None))
    assert mine.startswith(theirs)
    assert "without being entered" in mine


def test_exit_without_entry_does_no_harm_unlike_upstream() -> None:
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
    """As CommDebugMode and its like do: counts operators, and leaves the rest to the base."""

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


def test_mod_tracker_is_one_of_ours_and_knows_the_names() -> None:
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


# What is tracked from outside


def test_track_external() -> None:
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
        ("Optstate", 72),  # two of 4 floats and a step for each of two
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
def test_what_cannot_be_tracked(thing: Any) -> None:
    def describe(tool: ModuleType) -> Any:
        tracker = tool.MemTracker()
        return error_of(lambda: tracker.track_external(thing)), tracker.get_tracker_snapshot()

    error, _ = assert_same(describe)
    assert error.startswith("TypeError: Object of type <class '")


def test_bytes_go_with_the_tensor() -> None:
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
def test_snapshot_of_another_type(kind: Any) -> None:
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


def test_attributes_show_what_the_snapshots_do() -> None:
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


# Module statistics


def layout(tracker: Any) -> dict[str, Any]:
    return {
        stats.mod_fqn: (
            {name: value for name, value in sorted(vars(stats).items()) if name.endswith("_mem")},
            [(state.name, len(calls)) for state, calls in stats.snapshots.items()],
        )
        for stats in tracker.memory_tracking.values()
    }


MODELS: dict[str, Callable[[], nn.Module]] = {
    "mlp": mlp,
    "called_three_times": Twice,
    "buffers": lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)),
    "checkpointed_leaf": lambda: Checkpointed(False, nn.Linear(4, 4)),
}


@pytest.mark.parametrize("name", MODELS)
def test_layout_of_statistics(name: str) -> None:
    def describe(tool: ModuleType) -> Any:
        tracker = tool.MemTracker()
        model = train_step(tracker, MODELS[name]())
        kinds = [type(module).__name__ for module in tracker.memory_tracking]
        assert isinstance(tracker.memory_tracking[model], tool._ModMemStats)
        return layout(tracker), list(layout(tracker)), kinds

    assert_same(describe)


def test_layout_of_statistics_by_eye() -> None:
    tracker = ours.MemTracker()
    model = train_step(tracker, Twice())
    stats = tracker.memory_tracking[model.fc]
    assert (stats.parameter_mem, stats.buffer_mem, stats.input_mem, stats.output_mem) == (
        (4 * 4 + 4) * 4,
        0,
        2 * 4 * 4,
        2 * 4 * 4,
    )
    assert [(state.value, len(calls)) for state, calls in stats.snapshots.items()] == [
        ("Peak-Forward", 3),
        ("Pre-Forward", 3),
        ("Post-Forward", 3),
        ("Peak-Backward", 3),
        ("Pre-Backward", 3),
        ("Post-Backward", 3),
    ]
    snapshot = stats.snapshots["Pre-Forward"][0]  # the text will do
    assert snapshot[CPU][upstream._MemRefType.PARAM] == snapshot[CPU]["Parameter"] == 80
    assert type(stats.snapshots) is type(snapshot) is type(stats.local_peak) is dict
    assert type(stats.snapshots["Pre-Forward"]) is list


def test_snapshots_of_a_forward() -> None:
    def describe(tool: ModuleType) -> Any:
        tracker, model = tool.MemTracker(), mlp()
        with tracker, torch.no_grad():
            model(inputs())
        return [(vars(stats), list(vars(stats))) for stats in tracker.memory_tracking.values()]

    assert_same(describe)


def test_forward_that_raises() -> None:
    def describe(tool: ModuleType) -> Any:
        tracker, model = tool.MemTracker(), nn.Sequential(nn.Linear(4, 8), nn.Linear(4, 4))
        with pytest.raises(RuntimeError), tracker:
            model(inputs())
        return layout(tracker)

    sizes, states = assert_same(describe)["Sequential"]
    assert sizes["output_mem"] == 0
    assert states == [("PEAK_FW", 1), ("PRE_FW", 1), ("POST_FW", 1)]


class ReturnsNothing(nn.Module):
    def forward(self, x: torch.Tensor) -> None:
        return None


def test_output_of_a_module_that_returns_nothing() -> None:
    def describe(tool: ModuleType) -> int:
        tracker, model = tool.MemTracker(), ReturnsNothing()
        with tracker:
            model(inputs())
        return tracker.memory_tracking[model].output_mem

    assert assert_same(describe) == 0


def test_order_of_states_within_a_checkpointed_module() -> None:
    def describe(tool: ModuleType) -> Any:
        tracker = tool.MemTracker()
        model = train_step(tracker, Checkpointed(False))
        assert model
        return {name: states for name, (_, states) in layout(tracker).items()}

    assert_same(describe)


def test_dictionary_and_statistics_may_be_kept() -> None:
    def describe(tool: ModuleType) -> Any:
        tracker, model = tool.MemTracker(), mlp()
        tracking = tracker.memory_tracking
        with tracker:
            output = model(inputs())
            stats, snapshots = tracking[model], tracking[model].snapshots
            lists = snapshots[tool._ModState.PRE_FW]
            seen = [list(stats.snapshots)]
            output.sum().backward()
            seen.append(list(stats.snapshots))
        assert tracker.memory_tracking is tracking
        assert tracking[model] is tracking.get(model) is stats
        assert stats.snapshots is snapshots
        assert snapshots[tool._ModState.PRE_FW] is lists
        return seen

    forward, both = assert_same(describe)
    assert (len(forward), len(both)) == (3, 6)


def test_statistics_stay_readable_after_exit() -> None:
    tracker = ours.MemTracker()
    model = train_step(tracker, mlp())
    assert len(tracker.memory_tracking) == 4
    assert tracker.memory_tracking[model].snapshots


def test_entries_vanish_with_their_modules() -> None:
    def describe(tool: ModuleType) -> Any:
        tracker = tool.MemTracker()
        model = train_step(tracker, mlp())
        stats = tracker.memory_tracking[model]
        counts = [len(tracker.memory_tracking)]
        keep = model[0]
        del model
        gc.collect()
        counts.append(len(tracker.memory_tracking))
        assert keep in tracker.memory_tracking
        return counts, list(stats.snapshots), [type(key) for key in tracker.memory_tracking]

    counts, *_ = assert_same(describe)
    assert counts == [4, 1]


def test_entries_that_vanish_during_an_iteration() -> None:
    tracker = ours.MemTracker()
    models = [nn.Tanh(), nn.ReLU(), nn.GELU()]
    with tracker:
        for model in models:
            model(inputs())
    del model
    seen = []
    for module in tracker.memory_tracking:
        seen.append(type(module).__name__)
        del models[1:], module
        gc.collect()
    assert seen == ["Tanh"]
    assert len(tracker.memory_tracking) == 1


def test_modules_that_compare_equal_are_kept_apart() -> None:
    class Equal(nn.Module):
        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 1

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sin()

    def describe(tool: ModuleType) -> int:
        tracker, models = tool.MemTracker(), [Equal(), Equal()]
        with tracker:
            for model in models:
                model(inputs())
        copied = copy.deepcopy(tracker.memory_tracking)
        assert all(model in copied for model in models)
        return len(copied)

    assert assert_same(describe) == 2


def test_deepcopy_is_plain_and_stays_as_it_is() -> None:
    def describe(tool: ModuleType) -> Any:
        tracker = tool.MemTracker()
        model = train_step(tracker, mlp())
        copied = copy.deepcopy(tracker.memory_tracking)
        assert type(copied) is WeakIdKeyDictionary
        by_module = dict(copied)
        stats = by_module.get(model)
        assert type(stats) is tool._ModMemStats
        assert stats is not tracker.memory_tracking[model]
        assert vars(stats) == vars(tracker.memory_tracking[model])
        stats.snapshots.clear()
        assert tracker.memory_tracking[model].snapshots
        tracker.reset_mod_stats()
        return list(layout(SimpleNamespace(memory_tracking=copied)))

    assert_same(describe)


def test_shallow_copy_and_pickle_of_statistics_are_plain() -> None:
    tracker = ours.MemTracker()
    model = train_step(tracker, mlp())
    stats = tracker.memory_tracking[model]
    for copied in (copy.copy(stats), pickle.loads(pickle.dumps(stats))):
        assert type(copied) is ours._ModMemStats
        assert vars(copied) == vars(stats)
    assert isinstance(tracker.memory_tracking.copy(), WeakIdKeyDictionary)


def test_what_is_written_into_statistics_stays() -> None:
    """As test_sac_ilp of torch fills up what it finds missing."""

    def describe(tool: ModuleType) -> Any:
        tracker, model = tool.MemTracker(), mlp()
        with tracker:
            model(inputs())
        last = {CPU: {"Total": 3}}
        for stats in tracker.memory_tracking.values():
            assert tool._ModState.POST_BW not in stats.snapshots
            stats.snapshots.setdefault(tool._ModState.POST_BW, []).append(copy.deepcopy(last))
            stats.input_mem = 7
        return [
            (stats.input_mem, stats.snapshots[tool._ModState.POST_BW])
            for stats in tracker.memory_tracking.values()
        ]

    assert_same(describe)


def test_reset_clears_statistics_only() -> None:
    def describe(tool: ModuleType) -> Any:
        tracker = tool.MemTracker()
        model = train_step(tracker, mlp())
        before = tracker.get_tracker_snapshot(), tracker.get_tracker_snapshot("peak")
        tracking = tracker.memory_tracking
        kept = tracking[model]
        assert tracker.reset_mod_stats() is None
        assert tracker.memory_tracking is tracking
        assert (tracker.get_tracker_snapshot(), tracker.get_tracker_snapshot("peak")) == before
        assert tracker._mod_tracker.get_known_fqn(model) == "Sequential"
        counts = [len(tracking), len(kept.snapshots)]
        train_step(tracker, model)
        assert tracking[model] is not kept
        return [*counts, len(tracking), len(kept.snapshots)], len(tracking[model].snapshots)

    assert assert_same(describe) == ([0, 6, 4, 6], 6)


def test_clearing_the_dictionary_is_a_reset() -> None:
    def describe(tool: ModuleType) -> int:
        tracker, model = strict(tool), mlp()
        with tracker:
            for _ in range(2):
                model(inputs())
                tracker.memory_tracking.clear()
        return len(tracker.memory_tracking)

    assert assert_same(describe) == 0


# Iterations

SECOND_CALL = (
    "NotImplementedError: MemTracker does not support memory tracking for multiple iterative calls."
    " Either use ``reset_mod_stats`` to clear module memory stats for the previous iteration"
    " or file a github issue if you need this feature."
)


def test_strict_refuses_a_second_call_of_a_root() -> None:
    def describe(tool: ModuleType) -> Any:
        tracker, model = strict(tool), mlp()
        with tracker:
            model(inputs())
            error = error_of(lambda: model(inputs()))
            tracker.reset_mod_stats()
            model(inputs())
        return error, layout(tracker)["Sequential"][1], tracker._depth

    error, *_ = assert_same(describe)
    assert error == SECOND_CALL


def test_strict_refuses_a_second_entry_without_reset() -> None:
    def describe(tool: ModuleType) -> Any:
        tracker, model = strict(tool), mlp()
        with tracker:
            model(inputs())

        def again() -> None:
            with tracker:
                model(inputs())

        error = error_of(again)
        tracker.reset_mod_stats()
        again()
        return error, tracker._depth

    error, _ = assert_same(describe)
    assert error == SECOND_CALL


def test_strict_allows_a_child_alone_after_its_root() -> None:
    tracker, model = ours.MemTracker(strict=True), mlp()
    with tracker:
        model(inputs())
        model[0](inputs())
    assert len(tracker.memory_tracking[model[0]].snapshots["Pre-Forward"]) == 2


def test_second_call_of_a_root_begins_an_iteration() -> None:
    tracker, model = ours.MemTracker(), mlp()
    with tracker:
        for _ in range(3):
            model(inputs()).sum().backward()
    once = ours.MemTracker()
    other = train_step(once, mlp())
    assert layout(tracker) == layout(once)
    assert other


def test_peak_goes_on_over_iterations() -> None:
    tracker, model = ours.MemTracker(), mlp()
    with tracker:
        model(torch.ones(1000, 4))
        peak = tracker._peak_mem
        model(torch.ones(1, 4))
        assert tracker._peak_mem == peak


# Torch's own users of the tracker


def estimators_for(names: list[str]) -> tuple[Any, Any]:
    """Runtimes and trade-offs are no matter of memory: just enough for `aggregate_stats`."""
    runtime = SimpleNamespace(
        mod_runtimes={name: {"fw": 1.0, "bw": 2.0} for name in names},
        mod_fw_pre_order=names,
        mod_bw_pre_order=names[::-1],
        mod_fw_post_order=names[::-1],
        mod_bw_post_order=names,
    )
    sac = SimpleNamespace(pwlf_sac_tradeoff_curve=lambda: None, sac_mod_tradeoff_stats={})
    return runtime, sac


def test_ilp_utils_aggregate_the_statistics() -> None:
    def describe(tool: ModuleType) -> Any:
        tracker, model, x = tool.MemTracker(), mlp(), inputs()
        optimizer = torch.optim.Adam(model.parameters())
        tracker.track_external(model, optimizer, x)
        with tracker:
            for step in range(2):
                model(x).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
                if step == 0:
                    tracker.reset_mod_stats()
        names = [stats.mod_fqn for stats in tracker.memory_tracking.values()]
        info = ilp_utils.aggregate_stats(model, tracker, *estimators_for(names), CPU)
        graph = ilp_utils.parse_module_info(info)
        assert [node["fqn"] for node in graph.nodes] == names
        for stats in info["mod_stats"]:
            # Upstream calls the gradient just computed Temp, and we Gradient.
            del stats["act_grad_per_module"]
        return info

    info = assert_same(describe)
    assert [stats["fqn"] for stats in info["mod_stats"]] == [
        "Sequential",
        *(f"Sequential.{index}" for index in range(3)),
    ]
