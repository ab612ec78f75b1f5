# SPDX-License-Identifier: BSD-3-Clause
"""MemTracker's patches of torch work while a tracker is entered, and are removed afterwards."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed._tools.mem_tracker as upstream
from models import inputs
from shardings import DecompShardingStrategy
from tidegauge import MemTracker
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.meta_utils import MetaConverter
from torch.autograd.profiler import record_function
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.nn.modules import module as nn_module
from torch.optim import optimizer as optim_module
from torch_version import NO_SWAPPED_STORAGES

CPU = torch.device("cpu")


def places() -> list[Any]:
    swap = torch.UntypedStorage.__dict__.get("_swap_data_ptr_")
    return [
        nn.Module.__dict__["__call__"],
        torch.UntypedStorage.__dict__.get("resize_"),
        *([] if NO_SWAPPED_STORAGES else [swap]),
        record_function.__dict__["__exit__"],
        torch._C._InferenceMode.__dict__["__exit__"],
        MetaConverter.__dict__["__call__"],
        list(optim_module._global_optimizer_pre_hooks),
        list(optim_module._global_optimizer_post_hooks),
        list(nn_module._global_parameter_registration_hooks),
        list(nn_module._global_buffer_registration_hooks),
        FakeTensorMode.__dict__["__enter__"],
        ShardingPropagator.__dict__["_propagate_tensor_meta_non_cached"],
        *(
            [DecompShardingStrategy.__dict__["propagate_strategy"]]
            if DecompShardingStrategy
            else []
        ),
        torch._C._len_torch_dispatch_stack(),
    ]


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    before = places()
    yield
    assert places() == before


def split(tracker: MemTracker) -> dict[str, int]:
    """The categories that have bytes."""
    sizes = tracker.get_tracker_snapshot().get(CPU, {})
    return {str.__str__(key): size for key, size in sizes.items() if size}


def test_patches_exist_only_inside_the_context() -> None:
    before = places()
    tracker = MemTracker()
    assert places() == before
    with tracker:
        changed = [now != then for now, then in zip(places(), before, strict=True)]
        assert changed == [True] * (len(before) - 1) + [False]  # no mode is pushed
        with tracker, MemTracker():
            pass
        assert [now != then for now, then in zip(places(), before, strict=True)] == changed
    assert places() == before


def test_torch_is_restored_after_an_exception() -> None:
    with pytest.raises(ZeroDivisionError), MemTracker():
        raise ZeroDivisionError


def test_failed_entry_leaves_no_patches(monkeypatch: pytest.MonkeyPatch) -> None:
    tracker, before = MemTracker(), places()

    class Refusing:
        is_started = False

        def start(self) -> None:
            raise NotImplementedError("no")

        def stop(self) -> None: ...

    native = tracker._native
    monkeypatch.setattr(tracker, "_native", Refusing())
    with pytest.raises(NotImplementedError, match="no"):
        tracker.__enter__()
    assert places() == before
    assert tracker._depth == 0
    monkeypatch.setattr(tracker, "_native", native)
    with tracker:
        assert torch.ones(3).shape == (3,)
        assert places() != before


def test_trackers_may_leave_out_of_order() -> None:
    first, second = MemTracker(), MemTracker()
    before = places()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    tensor = torch.ones(4)
    tensor.untyped_storage().resize_(40)
    second.__exit__(None, None, None)
    assert places() == before
    assert (split(first), split(second)["Total"]) == ({}, 40)


def test_tracker_made_inside_another_restores_torch() -> None:
    """Upstream keeps the resize_ that it found at its construction."""
    with MemTracker():
        later = MemTracker()
    with later:
        pass


def test_upstream_tracker_made_inside_another_does_not_restore(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = torch.UntypedStorage.resize_
    with monkeypatch.context() as patch:
        patch.setattr(torch.UntypedStorage, "resize_", original)  # undone at the end
        with upstream.MemTracker():
            later = upstream.MemTracker()
        with later:
            pass
        assert torch.UntypedStorage.resize_ is not original


def test_foreign_patch_of_resize_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    original = torch.UntypedStorage.resize_

    def theirs(self: torch.UntypedStorage, size: int) -> Any:
        calls.append(size)
        return original(self, size)

    with monkeypatch.context() as patch:
        patch.setattr(torch.UntypedStorage, "resize_", theirs)
        with MemTracker() as tracker:
            tensor = torch.ones(1)
            tensor.untyped_storage().resize_(80)
            assert split(tracker)["Total"] == 80
        assert torch.UntypedStorage.resize_ is theirs
    assert calls == [80]


# Resizes


def test_resize_is_seen_at_once_and_by_the_peak() -> None:
    tracker = MemTracker()
    with tracker:
        tensor = torch.ones(4)
        storage = tensor.untyped_storage()
        assert storage.resize_(1 << 20) is storage
        storage.resize_(16)
        assert split(tracker) == {"Activation": 16, "Total": 16}
    assert tracker._peak_mem == {CPU: 1 << 20}


def test_failed_resize_changes_nothing() -> None:
    tracker = MemTracker()
    with tracker:
        tensor = torch.ones(4)
        with pytest.raises(RuntimeError, match="negative number"):
            tensor.untyped_storage().resize_(-1)
        with pytest.raises(TypeError):
            tensor.untyped_storage().resize_()
        assert split(tracker) == {"Activation": 16, "Total": 16}


def test_resize_has_its_own_name_and_doc() -> None:
    with MemTracker():
        assert torch.UntypedStorage.resize_.__name__ == "resize_"


@NO_SWAPPED_STORAGES.skips
def test_swap_of_storages_moves_the_bytes() -> None:
    tracker = MemTracker()
    full, empty = torch.ones(4), torch.ones(0)
    with tracker:
        full, empty = full.clone(), empty.clone()
        full.untyped_storage()._swap_data_ptr_(empty.untyped_storage())
        assert split(tracker) == {"Activation": 16, "Total": 16}
        del full
        assert split(tracker) == {"Activation": 16, "Total": 16}
        del empty
        assert split(tracker) == {}


# Optimizer steps


class Failing(torch.optim.SGD):
    """Makes a state of 5 floats, then raises the given error."""

    def __init__(self, params: Any, error: type[BaseException]) -> None:
        super().__init__(params)
        self.error = error

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        (parameter,) = self.param_groups[0]["params"]
        self.state[parameter]["state"] = torch.ones(5)
        raise self.error


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_step_that_raises_is_ended(error: type[BaseException]) -> None:
    tracker, model = MemTracker(), nn.Linear(4, 4, bias=False)
    optimizer = Failing(model.parameters(), error)
    with tracker:
        try:
            optimizer.step()
        except error:
            assert not tracker._in_opt
        after = torch.ones(3)
        assert split(tracker) == {"Activation": 12, "Optstate": 20, "Total": 32}
        with pytest.raises(error):
            optimizer.step()
        assert not tracker._in_opt
    assert after.shape == (3,)


def test_user_hook_that_raises_ends_the_step() -> None:
    tracker, model = MemTracker(), nn.Linear(4, 4)
    for register in ("register_step_pre_hook", "register_step_post_hook"):
        optimizer = torch.optim.SGD(model.parameters())
        getattr(optimizer, register)(lambda *_: 1 / 0)
        with tracker:
            with pytest.raises(ZeroDivisionError):
                optimizer.step()
            assert not tracker._in_opt


def test_nested_step_that_raises_ends_only_itself() -> None:
    tracker, model = MemTracker(), nn.Linear(4, 4, bias=False)
    inner = Failing(model.parameters(), ValueError)
    seen: list[bool] = []

    class Outer(torch.optim.SGD):
        @torch.no_grad()
        def step(self, closure: Any = None) -> None:
            with pytest.raises(ValueError):  # noqa: PT011
                inner.step()
            seen.append(tracker._in_opt)

    with tracker:
        Outer(model.parameters()).step()
        seen.append(tracker._in_opt)
    assert seen == [True, False]


def test_closure_is_not_part_of_the_step() -> None:
    """Its forward and backward are a training step of their own."""
    tracker, model = MemTracker(), nn.Linear(4, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)
    seen: list[bool] = []

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(torch.ones(2, 4)).square().sum()
        loss.backward()
        seen.append(tracker._in_opt)
        return loss

    with tracker:
        optimizer.step(closure)
        assert not tracker._in_opt
    assert set(seen) == {False}


def test_step_below_a_learning_rate_scheduler_is_seen() -> None:
    tracker, model = MemTracker(), nn.Linear(4, 4, bias=False)
    optimizer = torch.optim.Adam(model.parameters())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    with tracker:
        model(inputs()).sum().backward()
        optimizer.step()
        scheduler.step()
    assert split(tracker)["Optstate"] == 2 * 64 + 4


def test_tracker_entered_and_left_within_a_step() -> None:
    tracker, model = MemTracker(), nn.Linear(4, 4)

    class Entering(torch.optim.SGD):
        @torch.no_grad()
        def step(self, closure: Any = None) -> None:
            (tracker.__exit__ if tracker._depth else tracker.__enter__)()

    optimizer = Entering(model.parameters())
    optimizer.step()
    try:
        assert not tracker._in_opt
        kept = torch.ones(3)
        assert split(tracker) == {"Activation": 12, "Total": 12}
    finally:
        optimizer.step()
    with tracker:
        again = torch.ones(2)
        assert split(tracker) == {"Activation": 20, "Total": 20}
    assert (kept.shape, again.shape) == ((3,), (2,))


def test_steps_of_two_threads_do_not_mix() -> None:
    tracker, model = MemTracker(), nn.Linear(4, 4)
    seen: list[bool] = []

    class Spawning(torch.optim.SGD):
        @torch.no_grad()
        def step(self, closure: Any = None) -> None:
            thread = threading.Thread(target=lambda: seen.append(tracker._in_opt))
            thread.start()
            thread.join()
            seen.append(tracker._in_opt)

    with tracker:
        Spawning(model.parameters()).step()
    assert seen == [False, True]


# Registrations


def test_model_built_inside_is_labelled_before_its_first_call() -> None:
    tracker = MemTracker()
    with tracker:
        model = nn.BatchNorm1d(4)
        assert split(tracker) == {"Parameter": 32, "Buffer": 40, "Total": 72}
        model.running_mean = torch.zeros(8)
        model.register_buffer("nothing", None)
        model.weight = nn.Parameter(torch.ones(6))
        assert split(tracker) == {"Parameter": 40, "Buffer": 56, "Total": 96}


# Compilers


class Rebinding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count = self.count + 1
        return x * self.count


def test_compiled_module_that_rebinds_a_buffer_has_no_graph_break() -> None:
    compiled = torch.compile(Rebinding(), backend="eager", fullgraph=True)
    with MemTracker():
        assert compiled(torch.ones(2)).tolist() == [1, 1]


def test_entries_do_not_make_dynamo_recompile() -> None:
    graphs: list[Any] = []

    def backend(graph: Any, examples: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(Rebinding(), backend=backend, fullgraph=True)
    tracker = MemTracker()
    for _ in range(5):
        compiled(torch.ones(2))
        with tracker:
            compiled(torch.ones(2))
    assert len(graphs) <= 2


def test_compiled_step_of_an_optimizer_runs() -> None:
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    before = model.bias.detach().clone()
    with MemTracker() as tracker:
        model(inputs()).sum().backward()
        torch.compile(optimizer.step, backend="eager")()
        assert not tracker._in_opt
    assert torch.equal(model.bias, before - 2)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_torch_script_compiles_a_profiled_block_inside() -> None:
    """It compiles the class `record_function`, one of whose methods we replace."""

    def function(x: torch.Tensor) -> torch.Tensor:
        with torch.autograd.profiler.record_function("block"):
            y = x + 1
        return y  # noqa: RET504  (TorchScript wants it outside)

    with MemTracker():
        scripted = torch.jit.script(function)
        assert scripted(torch.ones(2)).tolist() == [2, 2]
    assert scripted(torch.ones(2)).tolist() == [2, 2]


def test_leaving_within_a_step_or_module_does_not_affect_later_labels() -> None:
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    within_step, within_module = MemTracker(), MemTracker()

    def leave_the_step() -> float:
        within_step.__exit__(None, None, None)
        return 0.0

    within_step.__enter__()
    optimizer.step(leave_the_step)
    with MemTracker() as tracker:
        kept = torch.ones(10)
        assert tracker.get_tracker_snapshot()[CPU]["Activation"] == kept.nbytes

    def leave_the_module(*_: Any) -> None:
        within_module.__exit__(None, None, None)

    handle = model.register_forward_hook(leave_the_module)
    within_module.__enter__()
    model(inputs()).sum().backward()
    handle.remove()
    momentum = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9)
    with MemTracker() as tracker:
        tracker.track_external(model)
        momentum.step()
        splits = tracker._native.splits(at_peak=False)[CPU]
        assert splits.keys() == {"Parameter", "Gradient", "Optstate"}
