# SPDX-License-Identifier: BSD-3-Clause
"""Groups, bytes and handles of collectives, beside upstream's answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from tidegauge import fake_collectives as ours
from tidegauge.fake_collectives import CollectiveOp
from torch._C._distributed_c10d import FakeWork, ProcessGroup, Work
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools import fake_collectives as upstream
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

Call = tuple[OpOverload, Any, Any, Any]

# 100 floats are 400 B; lists have one tensor for each of the four ranks.
BYTES = {
    "c10d": {
        "broadcast_": 400,
        "allreduce_": 400,
        "reduce_": 400,
        "send": 400,
        "recv_": 400,
        "allgather_": 1600,
        "reduce_scatter_": 1600,
        "_reduce_scatter_base_": 1600,
        "scatter_": 1600,
        "gather_": 1600,
        "_allgather_base_": 1600,
        "alltoall_": 1600,
        "alltoall_base_": 1600,
    },
    "_c10d_functional": {
        "broadcast": 400,
        "all_reduce": 400,
        "all_gather_into_tensor": 1600,
        "reduce_scatter_tensor": 1600,
        "all_to_all_single": 400,
        "all_reduce_coalesced": 1600,
        "all_gather_into_tensor_coalesced": 6400,
        "reduce_scatter_tensor_coalesced": 1600,
    },
    "_c10d_functional_autograd": {
        "all_gather_into_tensor": 1600,
        "reduce_scatter_tensor": 1600,
        "all_to_all_single": 400,
    },
}


class Recorded(TorchDispatchMode):
    """The calls of collectives."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in ours.collective_ops:
            self.calls.append((func, result, args, kwargs or {}))
        return result


@pytest.fixture
def _group_of_four() -> Iterator[None]:
    dist.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
    yield
    dist.destroy_process_group()


def call_all() -> list[Call]:
    """The collectives that a program calls, with 100 floats for each rank."""
    with FakeTensorMode(), Recorded() as recorded:
        one, all_ones = torch.randn(100), torch.randn(400)
        list_, long_list = [[torch.randn(size) for _ in range(4)] for size in (100, 400)]
        world = dist.group.WORLD
        dist.broadcast(one, src=0)
        dist.all_reduce(one)
        dist.reduce(one, dst=0)
        dist.send(one, dst=1)
        dist.recv(one, src=1)
        dist.all_gather(list_, one)
        dist.reduce_scatter(one, list_)
        dist.reduce_scatter_tensor(one, all_ones)
        dist.scatter(one, scatter_list=list_, src=0)
        dist.gather(one, gather_list=list_, dst=0)
        dist.all_gather_into_tensor(all_ones, one)
        dist.all_to_all(list_, list_)
        dist.all_to_all_single(all_ones, all_ones)
        dist.barrier()
        functional.wait_tensor(one)
        functional.broadcast(one, src=0, group=world)
        functional.all_reduce(one, reduceOp="avg", group=world)
        functional.all_gather_tensor(one, gather_dim=0, group=world)
        functional.reduce_scatter_tensor(all_ones, "sum", scatter_dim=0, group=world)
        functional.all_to_all_single(one, [0], [1], group=world)
        functional.all_reduce_coalesced(list_, "avg", group=world)
        functional.all_gather_into_tensor_coalesced(list_, group=world)
        functional.reduce_scatter_tensor_coalesced(long_list, "sum", [0] * 4, group=world)
    # Whether a dispatch mode sees these depends on the version of torch.
    ops, name = torch.ops._c10d_functional_autograd, world.group_name  # type: ignore[union-attr]
    return [
        *recorded.calls,
        call(ops.all_gather_into_tensor.default, torch.ones(100), 4, name),
        call(ops.reduce_scatter_tensor.default, torch.ones(400), "sum", 4, name),
        call(ops.all_to_all_single.default, torch.ones(100), [0], [1], name),
    ]


def call(func: OpOverload, *args: Any, **kwargs: Any) -> Call:
    with FakeTensorMode(allow_non_fake_inputs=True):
        return func, func(*args, **kwargs), args, kwargs


def our_bytes(recorded: Call) -> int:
    func, result, args, kwargs = recorded
    return CollectiveOp.get_comm_tensor_size(func, result, args, kwargs)


def upstream_bytes(recorded: Call) -> int:
    func, result, args, kwargs = recorded
    return upstream.CollectiveOp.get_comm_tensor_size(func, result, args, kwargs)


@pytest.mark.filterwarnings("ignore::FutureWarning")  # some have new names
@pytest.mark.usefixtures("_group_of_four")
def test_every_collective_has_its_bytes_group_and_handle() -> None:
    calls = call_all()
    sizes: dict[str, dict[str, int]] = {}
    for func, result, args, kwargs in calls:
        if func not in ours.sync_ops:
            size = our_bytes((func, result, args, kwargs))
            sizes.setdefault(func.namespace, {})[func._opname] = size
            assert size == upstream_bytes((func, result, args, kwargs))
        if "wait" not in func._opname:
            group = CollectiveOp.get_process_group(func, args)
            assert isinstance(group, ProcessGroup)
            assert group.size() == 4
        if func in ours.non_functional_collectives:
            assert isinstance(CollectiveOp.get_work(func, result), Work | FakeWork)
    assert sizes == BYTES
    assert sum(map(len, sizes.values())) == 24


def test_sets_have_the_ops_that_upstream_lists() -> None:
    assert ours.non_functional_collectives == upstream.non_functional_collectives
    assert ours.functional_collectives >= upstream.functional_collectives
    assert ours.sync_ops >= upstream.sync_ops
    assert ours.collective_ops == ours.functional_collectives | ours.non_functional_collectives


@pytest.mark.usefixtures("_group_of_four")
def test_group_of_ops_that_upstream_does_not_know() -> None:
    world = dist.group.WORLD
    assert world is not None
    barrier = torch.ops.c10d.monitored_barrier_.default
    scatter = torch.ops._c10d_functional.reduce_scatter_tensor_out.default
    for func, args in (
        (barrier, (torch.ones(1), world.boxed(), [], 0, False)),
        (scatter, (torch.ones(8), "sum", 4, world.group_name)),
    ):
        assert CollectiveOp.get_process_group(func, args) == world
        with pytest.raises(TypeError):
            upstream.CollectiveOp.get_process_group(func, args)


@pytest.mark.usefixtures("_group_of_four")
def test_ops_with_an_output_argument_have_bytes() -> None:
    ops, name = torch.ops._c10d_functional, dist.group.WORLD.group_name  # type: ignore[union-attr]
    gather = call(ops.all_gather_into_tensor_out.default, torch.ones(2), 4, name, out=torch.ones(8))
    assert our_bytes(gather) == 32
    with pytest.raises(AttributeError):
        upstream_bytes(gather)
    scatter = call(
        ops.reduce_scatter_tensor_out.default, torch.ones(8), "sum", 4, name, out=torch.ones(2)
    )
    assert our_bytes(scatter) == 32
    with pytest.raises(TypeError):
        upstream_bytes(scatter)


@pytest.mark.usefixtures("_group_of_four")
def test_view_counts_without_the_rest_of_its_storage() -> None:
    with Recorded() as recorded:
        dist.broadcast(torch.ones(1000)[:10], src=0)
    assert our_bytes(recorded.calls[0]) == 40
    assert upstream_bytes(recorded.calls[0]) == 4000


@pytest.mark.usefixtures("_group_of_four")
def test_rank_that_only_sends_in_a_gather_has_bytes() -> None:
    with Recorded() as recorded:
        dist.gather(torch.ones(10), dst=1)
    assert our_bytes(recorded.calls[0]) == 40
    assert upstream_bytes(recorded.calls[0]) == 0


def test_other_ops_are_refused() -> None:
    add = torch.ops.aten.add.Tensor
    arguments = (torch.ones(1), torch.ones(1))
    with pytest.raises(TypeError, match=r"aten\.add\.Tensor has no process group"):
        CollectiveOp.get_process_group(add, arguments)
    with pytest.raises(TypeError, match=r"aten\.add\.Tensor sends no tensors"):
        CollectiveOp.get_comm_tensor_size(add, torch.ones(1), arguments)
    with pytest.raises(TypeError, match=r"aten\.add\.Tensor returns no handle"):
        CollectiveOp.get_work(add, torch.ones(1))
    with pytest.raises(TypeError, match="sends no tensors"):
        CollectiveOp.get_comm_tensor_size(torch.ops.c10d.barrier.default, None, arguments)
