# SPDX-License-Identifier: BSD-3-Clause
"""The names, enums and data classes of mem_tracker equal upstream's."""

from __future__ import annotations

import copy
import enum
import inspect
import os
import pickle
import subprocess
import sys
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import tidegauge
import tidegauge.common_utils
import tidegauge.mem_tracker as ours
import torch
import torch.distributed._tools.mem_tracker as upstream
from both_mem_trackers import CPU, assert_same
from torch import nn
from torch.distributed._tools import common_utils

# The module's names


def test_all_is_the_same_as_upstreams() -> None:
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
def test_public_names_exist(name: str) -> None:
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


def test_package_does_not_import_the_tools_it_replaces() -> None:
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
def test_enum_member_equals_its_string(name: str) -> None:
    for mine, theirs in zip(getattr(ours, name), getattr(upstream, name), strict=True):
        assert mine == mine.value == theirs
        assert hash(mine) == hash(mine.value) == hash(theirs)
        assert {mine: 1}[mine.value] == {mine.value: 1}[mine] == {mine: 1}[theirs] == 1
        assert f"{mine}" == f"{theirs}"
        assert isinstance(mine, str)
        assert pickle.loads(pickle.dumps(mine)) is copy.deepcopy(mine) is mine


def test_update_type_is_not_a_string() -> None:
    assert not issubclass(ours._UpdateType, str)
    assert [member.value for member in ours._UpdateType] == [1, 2, 3, 4]


def test_enums_can_be_extended_as_the_sharded_tracker_does() -> None:
    kind = enum.Enum("kind", {"A": "a"}, type=ours._RefType)  # type: ignore[misc]
    assert kind["A"] == "a"


# Data classes


@pytest.mark.parametrize("device", ["cpu", "meta", "cuda", "cuda:1", "xpu"])
@pytest.mark.parametrize("size", [0, 1, 100, 512, 513, 2**40 + 1])
@pytest.mark.parametrize("element_size", [1, 4])
def test_weak_ref_info_is_the_same_as_upstreams(size: int, element_size: int, device: str) -> None:
    def describe(tool: ModuleType) -> dict[str, Any]:
        kind = tool._MemRefType.ACT
        return vars(tool._WeakRefInfo(size, element_size, torch.device(device), kind))

    described = assert_same(describe)
    assert set(described) == {"size", "element_size", "device", "reftype", "mem_consumed"}


def test_weak_ref_info_with_known_numbers() -> None:
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


def test_create_winfo_calls_back_when_the_storage_is_freed() -> None:
    def describe(tool: ModuleType) -> list[Any]:
        calls: list[Any] = []
        storage = torch.UntypedStorage(12)
        info, ref = tool._WeakRefInfo.create_winfo(
            storage, CPU, tool._MemRefType.TEMP, lambda *args: calls.append(args)
        )
        assert isinstance(info, tool._WeakRefInfo)
        assert isinstance(ref, weakref.ref)
        assert ref() is storage
        assert not calls
        del storage
        assert [(winfo is info, which is ref) for winfo, which in calls] == [(True, True)]
        return [vars(info), ref()]

    assert_same(describe)


def test_create_winfo_works_without_callback() -> None:
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
def test_storages_are_the_same_as_upstreams(name: str) -> None:
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


def test_storages_of_an_object_that_is_not_a_tensor() -> None:
    def describe(tool: ModuleType) -> Any:
        with pytest.warns(UserWarning, match="Expected a tensor") as caught:
            storages = tool.get_untyped_storages(None)
        assert caught[0].filename == __file__
        return storages, [str(warning.message) for warning in caught]

    assert assert_same(describe)[1] == [
        "Expected a tensor or a traceable wrapper-subclass of tensor, but got <class 'NoneType'>"
    ]
