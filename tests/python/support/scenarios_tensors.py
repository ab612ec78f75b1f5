# SPDX-License-Identifier: BSD-3-Clause
"""Scenarios: where tensors come from and what can happen to them."""

from __future__ import annotations

import ctypes
import io
from typing import Any

import torch
from runs import Run, Scenarios
from scenarios_models import mlp, train
from torch import nn

TENSORS = Scenarios()
scenario = TENSORS.add


def with_input(run: Run, x: torch.Tensor) -> object:
    """One step on memory that the allocator did not make."""
    run.leave_out(-x.untyped_storage().nbytes())
    return train(run, mlp(), x)


@scenario
def from_numpy(run: Run) -> object:
    import numpy

    return with_input(run, torch.from_numpy(numpy.ones((8, 32), dtype=numpy.float32)))


@scenario
def from_shared_memory(run: Run) -> object:
    x = torch.ones(8, 32)
    return with_input(run, x.share_memory_())


@scenario
def from_blob(run: Run) -> object:
    memory = (ctypes.c_float * 256)()
    return with_input(run, torch.frombuffer(memory, dtype=torch.float32).view(8, 32))


@scenario
def from_torch_load(run: Run) -> object:
    file = io.BytesIO()
    torch.save(torch.ones(8, 32), file)
    file.seek(0)
    return train(run, mlp(), torch.load(file))


@scenario
def storage_resized_then_used(run: Run) -> object:
    """Resizes storages, like FSDP with its parameters."""
    x = torch.ones(1024)
    with run.tracking(x):
        x.untyped_storage().resize_(0)
        run.mark("freed")
        x.untyped_storage().resize_(4096)
        run.mark("back")
        y = x.fill_(2.0) * 3
        run.mark("used")
        del y
    return x


@scenario
def tensor_resized(run: Run) -> object:
    x = torch.ones(16)
    with run.tracking(x):
        x.resize_(1024)
        run.mark("grown")
        x.resize_(16)
        run.mark("storage stays")
    return x


@scenario
def out_argument_grows(run: Run) -> object:
    x, y = torch.ones(1024), torch.empty(0)
    with run.tracking(x, y):
        torch.add(x, x, out=y)
        run.mark("grown")
    return y


@scenario
def set_to_other_storage(run: Run) -> object:
    x = torch.ones(1024)
    with run.tracking(x):
        x.set_(torch.ones(16))
        run.mark("after set_")
        x.set_()
        run.mark("empty")
    return x


@scenario
def views(run: Run) -> object:
    x = torch.ones(64, 64)
    with run.tracking(x):
        y = x.t()[3:].unsqueeze(0).expand(5, -1, -1).view(5, 61, 64)
        run.mark("views")
        z = y.reshape(-1)
        run.mark("reshape copies")
        del y, z
        run.mark("after del")
    return x


class Pair(torch.Tensor):
    """A wrapper of two tensors with one storage each."""

    a: torch.Tensor
    b: torch.Tensor

    @staticmethod
    def __new__(cls, a: torch.Tensor, b: torch.Tensor) -> Pair:
        return torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined,no-any-return]
            cls, a.shape, dtype=a.dtype, requires_grad=a.requires_grad
        )

    def __init__(self, a: torch.Tensor, b: torch.Tensor) -> None:
        self.a, self.b = a, b

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["a", "b"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Any], context: None, *size: Any) -> Pair:
        return Pair(inner["a"], inner["b"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def of(name: str) -> Any:
            inner = torch.utils._pytree.tree_map_only(Pair, lambda t: getattr(t, name), args)
            return func(*inner, **(kwargs or {}))

        a, b = of("a"), of("b")
        return Pair(a, b) if isinstance(a, torch.Tensor) else a


@scenario
def subclass_of_two_storages(run: Run) -> object:
    x = Pair(torch.ones(32, 32), torch.ones(32, 32))
    with run.tracking(x):
        y = x + x
        run.mark("sum")
        z = y.t() @ x
        run.mark("product")
        del y, z
        run.mark("after del")
    return x


@scenario
def nested_tensor(run: Run) -> object:
    rows = [torch.randn(3, 8), torch.randn(5, 8)]
    weight = torch.randn(8, 8, requires_grad=True)
    with run.tracking(*rows, weight):
        x = torch.nested.nested_tensor(rows, layout=torch.jagged)
        run.mark("nested")
        y = torch.nn.functional.linear(x, weight)
        run.mark("linear")
        del x, y
    return rows


@scenario
def quantised_tensor(run: Run) -> object:
    x = torch.randn(32, 32)
    with run.tracking(x):
        q = torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)
        run.mark("quantised")
        y = q.dequantize()
        run.mark("back")
        del q, y
    return x


@scenario
def sparse_tensor(run: Run) -> object:
    indices, values = torch.tensor([[0, 1], [2, 0]]), torch.randn(2)
    with run.tracking(indices, values):
        x = torch.sparse_coo_tensor(indices, values, (3, 3)).coalesce()
        run.mark("coalesced")
        y = x.to_dense()
        run.mark("dense")
        z = y.to_sparse_csr()
        run.mark("csr")
        del x, y, z
        run.mark("after del")
    return indices, values


@scenario
def data_replaced(run: Run) -> object:
    """`p.data = ` gives a parameter another storage."""
    model = nn.Linear(32, 32)
    x = torch.randn(8, 32)
    with run.tracking(model, x):
        run.step(model, x)
        model.weight.data = torch.zeros(32, 32)
        run.mark("replaced")
        run.reset()
        run.step(model, x)
    return model


@scenario
def tensors_swapped(run: Run) -> object:
    model, x = nn.Linear(32, 32), torch.randn(8, 32)
    with run.tracking(model, x):
        run.step(model, x)
        other = nn.Parameter(torch.zeros(32, 32))
        torch.utils.swap_tensors(model.weight, other)
        del other
        run.mark("swapped")
        run.reset()
        run.step(model, x)
    return model


class Counter(nn.Module):
    """Binds its buffer to a new tensor in each forward."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(64))
        self.fc = nn.Linear(32, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.fc(x)
        self.seen = self.seen + y.detach().sum(0)
        return y


@scenario
def buffer_rebound(run: Run) -> object:
    model, x = Counter(), torch.randn(8, 32)
    with run.tracking(model, x):
        for _ in range(2):
            run.reset()
            run.step(model, x)
    return model


@scenario
def tensors_built_inside(run: Run) -> object:
    with run.tracking():
        x = torch.randn(8, 32)
        y = torch.tensor([1.0, 2.0])
        z = torch.arange(10)
        run.mark("built")
        del y, z
        run.mark("after del")
    return x


@scenario
def foreach_ops(run: Run) -> object:
    tensors = [torch.randn(32) for _ in range(4)]
    with run.tracking(*tensors):
        doubled = torch._foreach_mul(tensors, 2.0)
        run.mark("new list")
        torch._foreach_add_(doubled, tensors)
        run.mark("in place")
        del doubled
    return tensors


@scenario
def storage_resized_up_and_back(run: Run) -> object:
    storage = torch.UntypedStorage(0)
    x = torch.empty(0)
    with run.tracking(x):
        run.mark("before")
        x.untyped_storage().resize_(1_048_576)
        run.mark("large")
        x.untyped_storage().resize_(0)
        run.mark("after")
        x.add(1)
    return storage


@scenario
def cow_clone(run: Run) -> object:
    x = torch.randn(32, 32)
    with run.tracking(x):
        y = torch._lazy_clone(x)
        run.mark("shared")
        y.add_(1)
        run.mark("written")
        del y
        run.mark("after del")
    return x
