# SPDX-License-Identifier: BSD-3-Clause
"""Under a user's FakeTensorMode the figures are those of the real run."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
import torch.distributed as dist
from runs import Kind, Record, Run, read_split, run_scenario
from test_mem_against_upstream import SCENARIOS
from test_mem_against_upstream import record as record_real
from tidegauge import MemTracker
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker as UpstreamMemTracker
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

FAKE_MODE_FAILS = {
    "lbfgs": "DataDependentOutputException",
    "grad_scaler": "DataDependentOutputException",
    "from_shared_memory": "RuntimeError",
    "from_blob": "AssertionError",
    "from_torch_load": "AttributeError",
    "nested_tensor": "AssertionError",
    "distributed_data_parallel": "RuntimeError",
}
"""scenario -> the error of the mode itself, with a tracker or without"""
ADDED_OUT_OF_PLACE = {
    "attention",
    "lora",
    "transformer_decoder",
    "transformer_layer",
    "truncated_backpropagation",
}
"""Fake tensors are a subclass, whose gradients autograd never adds up in place."""
OTHER_KERNELS = {"embedding_bag", "lstm", "quantised_tensor"}
"""The fake kernel has other results than that of the CPU."""
NO_ENTRIES = {"embedding_sparse", "sparse_tensor"}
"""A fake sparse tensor has no entries, whatever it was made of."""
NO_WRITES = {"cow_clone"}
"""A fake kernel writes nothing, so nothing is copied on write."""
APART = FAKE_MODE_FAILS.keys() | ADDED_OUT_OF_PLACE | OTHER_KERNELS | NO_ENTRIES | NO_WRITES


@functools.cache
def record(kind: Kind, name: str) -> Record:
    with FakeTensorMode():
        return run_scenario(kind, SCENARIOS[name])


@pytest.mark.parametrize("name", [name for name in SCENARIOS if name not in APART])
def test_figures_are_those_of_the_real_run(name: str) -> None:
    fake = record("ours", name)
    assert (fake.error, fake.anomalies) == (None, (0, ""))
    assert fake.flat() == record_real("ours", name).flat()


@pytest.mark.parametrize("name", FAKE_MODE_FAILS)
def test_error_of_the_mode_is_that_without_a_tracker(name: str) -> None:
    for kind in ("ours", "untracked"):
        assert type(record(kind, name).error).__name__ == FAKE_MODE_FAILS[name]


@pytest.mark.parametrize("name", sorted(ADDED_OUT_OF_PLACE))
def test_only_the_peak_of_backward_shows_sums_out_of_place(name: str) -> None:
    fake, real = record("ours", name).flat(), record_real("ours", name).flat()
    found = {key for key in fake | real if fake.get(key) != real.get(key)}
    assert found
    assert all(key.startswith("peak: ") or key.endswith(": Peak-Backward") for key in found)
    assert fake["peak: Total"] >= real["peak: Total"]


@pytest.mark.parametrize("name", sorted((ADDED_OUT_OF_PLACE | OTHER_KERNELS) - {"lora", "lstm"}))
def test_where_the_run_itself_is_another_the_totals_are_those_of_upstream(name: str) -> None:
    ours, upstream = record("ours", name), record("upstream", name)
    assert upstream.error is None
    assert ours.peak["Total"] == upstream.peak["Total"]
    assert ours.marks == upstream.marks


def test_lazy_clone_of_a_fake_tensor_is_made_as_without_a_tracker() -> None:
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


def total(tracker: Any, device: str = "cpu") -> int:
    return read_split(tracker.get_tracker_snapshot(), torch.device(device)).get("Total", 0)


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


def test_tracker_entered_outside_of_the_mode_does_not_count_it() -> None:
    with MemTracker() as tracker:
        kept = [torch.ones(4)]
        with FakeTensorMode():
            kept.append(torch.ones(1000))
        assert total(tracker) == 16


def test_two_trackers_of_two_modes_are_apart() -> None:
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


def test_device_is_the_claimed_one() -> None:
    with FakeTensorMode(), MemTracker() as tracker:
        there = torch.empty(100, device="cuda:1")
        here = torch.empty(10)
        assert (total(tracker, "cuda:1"), total(tracker)) == (400, 40)
        moved = there.to("cpu")
        assert (total(tracker, "cuda:1"), total(tracker)) == (400, 440)
        del there, moved
        assert (total(tracker, "cuda:1"), total(tracker)) == (0, 40)
        del here


def test_op_that_raises_leaves_the_tracker_right() -> None:
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
    """A constant is real inside of its fake tensor."""
    with FakeTensorMode(), MemTracker() as tracker:
        x = torch.tensor([1.0, 2.0, 3.0])
        assert total(tracker) == x.nbytes


class Passing(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def test_mode_of_a_user_on_top_changes_nothing() -> None:
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
def test_collective_that_was_waited_for_is_one_tensor() -> None:
    def run(tracker: Any) -> list[int]:
        totals = []
        with FakeTensorMode(), tracker:
            x = torch.ones(256)
            gathered = torch.distributed._functional_collectives.all_gather_tensor(
                x, 0, dist.group.WORLD
            )
            gathered = gathered + 0  # waits
            totals.append(total(tracker))
            del gathered, x
            totals.append(total(tracker))
        return totals

    assert run(MemTracker()) == run(UpstreamMemTracker()) == [1024 + 4096, 0]


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
