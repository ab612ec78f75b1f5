# SPDX-License-Identifier: BSD-3-Clause
"""Under a user's FakeTensorMode, figures equal those of the real run."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.distributed as dist
from differences import is_fixed_upstream
from fake_training import PARAMETERS, TRAINED, read_all, total, train
from runs import Kind, Record, Run, read_split, run_scenario
from scenarios import SCENARIOS
from scenarios import record as record_real
from tidegauge import MemTracker
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker as UpstreamMemTracker
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch_version import NO_QUANTISED_FAKES

FAKE_MODE_FAILS = {
    "lbfgs": "DataDependentOutputException",
    "grad_scaler": "DataDependentOutputException",
    "from_shared_memory": "RuntimeError",
    "from_blob": "AssertionError",
    "from_torch_load": "AttributeError",
    "nested_tensor": "AssertionError",
    "distributed_data_parallel": "RuntimeError",
}
"""scenario -> the error of the mode itself, with or without a tracker"""
ADDED_OUT_OF_PLACE = {
    "attention",
    "lora",
    "transformer_decoder",
    "transformer_layer",
    "truncated_backpropagation",
}
"""Fake tensors are a subclass, so autograd never adds their gradients in place."""
OTHER_KERNELS = {"embedding_bag", "lstm", "quantised_tensor"}
"""The fake kernel has other results than the CPU kernel."""
if NO_QUANTISED_FAKES:
    OTHER_KERNELS.remove("quantised_tensor")
    FAKE_MODE_FAILS["quantised_tensor"] = "UnsupportedFakeTensorException"
NO_ENTRIES = {"embedding_sparse", "sparse_tensor"}
"""A fake sparse tensor has no entries, whatever it was made from."""
NO_WRITES = {"cow_clone"}
"""A fake kernel writes nothing, so nothing is copied on write."""
APART = FAKE_MODE_FAILS.keys() | ADDED_OUT_OF_PLACE | OTHER_KERNELS | NO_ENTRIES | NO_WRITES


@functools.cache
def record(kind: Kind, name: str) -> Record:
    with FakeTensorMode():
        return run_scenario(kind, SCENARIOS[name])


@pytest.mark.parametrize("name", [name for name in SCENARIOS if name not in APART])
def test_figures_equal_those_of_the_real_run(name: str) -> None:
    fake = record("ours", name)
    assert (fake.error, fake.anomalies) == (None, (0, ""))
    assert fake.flat() == record_real("ours", name).flat()


@pytest.mark.parametrize("name", FAKE_MODE_FAILS)
def test_error_of_the_mode_is_the_same_as_without_a_tracker(name: str) -> None:
    for kind in ("ours", "untracked"):
        assert type(record(kind, name).error).__name__ == FAKE_MODE_FAILS[name]


@pytest.mark.parametrize("name", sorted(ADDED_OUT_OF_PLACE))
def test_out_of_place_sums_change_only_the_peak_of_backward(name: str) -> None:
    fake, real = record("ours", name).flat(), record_real("ours", name).flat()
    found = {key for key in fake | real if fake.get(key) != real.get(key)}
    assert found
    assert all(key.startswith("peak: ") or key.endswith(": Peak-Backward") for key in found)
    assert fake["peak: Total"] >= real["peak: Total"]


@pytest.mark.parametrize("name", sorted((ADDED_OUT_OF_PLACE | OTHER_KERNELS) - {"lora"}))
def test_totals_equal_upstream_if_the_fake_run_differs_from_the_real_one(name: str) -> None:
    # The first fake run of an LSTM in a process copies two gradients that later runs do not: by
    # then the mode has its operators in a cache.
    record("untracked", name)
    ours, upstream = record("ours", name), record("upstream", name)
    assert upstream.error is None
    assert ours.peak["Total"] == upstream.peak["Total"]
    assert ours.marks == upstream.marks


def test_lazy_clone_of_a_fake_tensor_works_as_without_a_tracker() -> None:
    with FakeTensorMode(), MemTracker() as tracker:
        x = torch.ones(16)
        lazy = torch._lazy_clone(x)
        assert total(tracker) == x.nbytes
        del x
        lazy = lazy + 0
        assert total(tracker) == lazy.nbytes


def test_parts_of_a_sparse_tensor_are_on_the_device_that_it_claims() -> None:
    with FakeTensorMode(), MemTracker() as tracker:
        dense = torch.ones(3, 3)
        compressed = dense.to_sparse_csr()
        parts = compressed.crow_indices().nbytes + compressed.values().nbytes
        assert list(tracker.get_tracker_snapshot()) == [torch.device("cpu")]
        assert total(tracker) == dense.nbytes + compressed.col_indices().nbytes + parts


def test_no_mode_is_pushed() -> None:
    with FakeTensorMode():
        before = torch._C._len_torch_dispatch_stack()
        with MemTracker():
            assert torch._C._len_torch_dispatch_stack() == before
            torch.ones(3)


def test_only_the_mode_at_entry_counts() -> None:
    with FakeTensorMode(), MemTracker() as tracker:
        kept = [torch.ones(4)]
        with FakeTensorMode():
            kept.append(torch.ones(1000))
        assert total(tracker) == 16
        kept.append(torch.ones(4))
        assert total(tracker) == 32


def test_tracker_entered_outside_the_mode_does_not_count_its_tensors() -> None:
    with MemTracker() as tracker:
        kept = [torch.ones(4)]
        with FakeTensorMode():
            kept.append(torch.ones(1000))
        assert total(tracker) == 16


def test_two_trackers_of_two_modes_are_independent() -> None:
    with FakeTensorMode(), MemTracker() as outer:
        first = torch.ones(4)
        with FakeTensorMode(), MemTracker() as inner:
            second = torch.ones(100)
            assert (total(outer), total(inner)) == (16, 400)
        third = torch.ones(4)
        assert (total(outer), total(inner)) == (32, 400)
        del second
        assert (total(outer), total(inner)) == (32, 0)
    del first, third
    assert (total(outer), total(inner)) == (0, 0)


@pytest.mark.parametrize("is_entered_in_a_mode", [False, True])
def test_training_in_another_mode_does_not_count(is_entered_in_a_mode: bool) -> None:
    """Upstream counts only tensors that its module and optimizer hooks see, and has no peak; older
    versions count all."""

    def run(tracker: Any) -> Any:
        entered_in = FakeTensorMode() if is_entered_in_a_mode else nullcontext()
        with entered_in, tracker, FakeTensorMode():
            kept = train()
            inside = read_all(tracker), read_all(tracker, "peak")
        outside = read_all(tracker), read_all(tracker, "peak")
        del kept
        return inside, outside

    assert run(MemTracker()) == (({}, {}), ({}, {}))
    # The temporaries of Adam's step are two more tensors of all parameters, less the biases.
    step = 2 * 32 * 32 * 4
    peak = {"Optstate": TRAINED["Optstate"] + step, "Total": TRAINED["Total"] + step}
    theirs = {} if is_fixed_upstream(since=(2, 13)) else {"cpu": TRAINED | peak}
    assert run(UpstreamMemTracker()) == (({"cpu": TRAINED}, theirs), ({"cpu": TRAINED}, theirs))


def test_trackers_of_two_modes_see_only_their_own_model() -> None:
    with FakeTensorMode(), MemTracker() as outer:
        first = train()
        alone = read_all(outer), read_all(outer, "peak")
        assert alone[0] == {"cpu": TRAINED}
        with FakeTensorMode(), MemTracker() as inner:
            second = train()
            assert (read_all(inner), read_all(inner, "peak")) == alone
        assert (read_all(outer), read_all(outer, "peak")) == alone
        del second
        assert (read_all(outer), read_all(inner)) == (alone[0], {})
        del first
        assert (read_all(outer), read_all(inner)) == ({}, {})


def test_threads_with_their_own_mode_and_tracker_are_independent() -> None:
    figures: list[Any] = []
    count = 4
    together = threading.Barrier(count)

    def run(wait: Callable[[], object]) -> None:
        with FakeTensorMode(), MemTracker() as tracker:
            wait()
            kept = train()
            wait()
            figures.append((read_all(tracker), read_all(tracker, "peak")))
            wait()
            del kept
            assert read_all(tracker) == {}

    run(lambda: None)
    threads = [threading.Thread(target=run, args=(together.wait,)) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert figures[0][0] == {"cpu": TRAINED}
    assert figures == [figures[0]] * (count + 1)


def test_external_tensors_of_another_mode_count() -> None:
    def run(tracker: Any) -> list[int]:
        totals = []
        with FakeTensorMode():
            before, inside, model = torch.ones(4), torch.ones(100), nn.Linear(32, 32)
        tracker.track_external(before)
        with tracker:
            totals.append(total(tracker))
            tracker.track_external(inside)
            totals.append(total(tracker))
            tracker.track_external(model)
            totals.append(total(tracker))
        return totals

    assert run(MemTracker()) == run(UpstreamMemTracker()) == [16, 416, 416 + PARAMETERS]


@pytest.mark.parametrize("is_entered_in_a_mode", [False, True])
def test_resized_storage_of_another_mode_does_not_count(is_entered_in_a_mode: bool) -> None:
    entered_in = FakeTensorMode() if is_entered_in_a_mode else nullcontext()
    with entered_in, MemTracker() as tracker, FakeTensorMode():
        x = torch.ones(4)
        x.untyped_storage().resize_(0)
        x.untyped_storage().resize_(400)
        assert (read_all(tracker), read_all(tracker, "peak")) == ({}, {})


def test_tracker_is_right_after_an_op_raised() -> None:
    with FakeTensorMode(), MemTracker() as tracker:
        x = torch.ones(4, 8)
        with pytest.raises(RuntimeError):
            x @ x
        y = x @ x.t()
        assert total(tracker) == 4 * 8 * 4 + 4 * 4 * 4
        del y
        assert total(tracker) == x.nbytes


def test_symbolic_sizes_do_not_raise() -> None:
    mode = FakeTensorMode(shape_env=ShapeEnv())
    real, dynamic = torch.ones(4, 8), torch.ones(5, 8)
    torch._dynamo.mark_dynamic(dynamic, 0)
    with mode, MemTracker() as tracker:
        x = mode.from_tensor(real)
        symbolic = mode.from_tensor(dynamic, static_shapes=False)
        y = (symbolic @ x.t()).sum()
        assert total(tracker) >= y.nbytes


def test_real_memory_within_the_mode_counts_once() -> None:
    """A constant is a real tensor inside its fake tensor."""
    with FakeTensorMode(), MemTracker() as tracker:
        x = torch.tensor([1.0, 2.0, 3.0])
        assert total(tracker) == x.nbytes


class Passing(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def test_user_mode_on_top_changes_nothing() -> None:
    model = nn.Linear(8, 8)

    def run(with_mode: bool) -> dict[str, int]:
        with FakeTensorMode(allow_non_fake_inputs=True) as mode, MemTracker() as tracker:
            x = torch.ones(4, 8)
            if with_mode:
                with Passing():
                    loss = model(x).sum()
            else:
                loss = model(x).sum()
            assert loss.fake_mode is mode
            return read_split(tracker.get_tracker_snapshot())

    assert run(True) == run(False)


@pytest.fixture
def fake_world() -> Any:
    dist.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("fake_world")
@pytest.mark.parametrize("mode", [nullcontext, FakeTensorMode])
def test_waited_collective_is_one_tensor(mode: Any) -> None:
    """The same as in a real run, although the fake kernel of wait_tensor makes another tensor."""
    gather, wait = (
        getattr(torch.ops._c10d_functional, name).default
        for name in ("all_gather_into_tensor", "wait_tensor")
    )

    def run(tracker: Any) -> list[int]:
        totals = []
        with mode(), tracker:
            x = torch.ones(256)
            gathered = gather(x, 4, dist.group.WORLD.group_name)
            totals.append(total(tracker))
            waited = wait(gathered)
            totals.append(total(tracker))
            del gathered
            totals.append(total(tracker))
            result = waited + 0
            totals.append(total(tracker))
            del x, waited, result
            totals.append(total(tracker))
        peak = read_split(tracker.get_tracker_snapshot("peak"))["Total"]
        return [*totals, peak]

    own, whole = 256 * 4, 4 * 256 * 4
    held = [own + whole, own + whole, own + whole, own + 2 * whole, 0]
    assert run(MemTracker()) == run(UpstreamMemTracker()) == [*held, own + 2 * whole]


def test_runs_one_after_another_agree() -> None:
    def scenario(run: Run) -> object:
        model, x = nn.Linear(8, 8), torch.ones(4, 8)
        with run.tracking(model, x):
            run.step(model, x)
        return model

    figures = []
    for _ in range(2):
        with FakeTensorMode():
            figures.append(run_scenario("ours", scenario).flat())
        figures.append(run_scenario("ours", scenario).flat())
    assert all(each == figures[0] for each in figures)
