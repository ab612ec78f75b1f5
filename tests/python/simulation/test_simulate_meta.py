# SPDX-License-Identifier: BSD-3-Clause
"""Meta tensors inside `simulate` stay meta, as in real torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tidegauge import simulate
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

OPS: dict[str, Callable[[torch.Tensor], Any]] = {
    "empty_like": torch.empty_like,
    "zeros_like": torch.zeros_like,
    "rand_like": torch.rand_like,
    "full_like": lambda x: torch.full_like(x, 2),
    "to(dtype)": lambda x: x.to(torch.bfloat16),
    "new_empty": lambda x: x.new_empty(3),
    "new_zeros": lambda x: x.new_zeros(3),
    "new_full": lambda x: x.new_full((3,), 1.0),
    "new_empty_strided": lambda x: x.new_empty_strided((2, 2), (2, 1)),
    "clone": torch.clone,
    "add": lambda x: x + 1,
    "matmul": lambda x: x @ x,
    "sum": lambda x: x.sum(),
    "chunk": lambda x: x.chunk(2)[1].contiguous(),
    "normal_": lambda x: nn.init.normal_(x.clone()),
    "where": lambda x: torch.where(x > 0, x, 0.0),
    "nonpersistent": lambda x: torch.empty_like(x, dtype=torch.int64),
}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("name", OPS)
def test_results_of_meta_tensors_are_meta(name: str, device: str) -> None:
    real = OPS[name](torch.empty(4, 4, device="meta"))
    with simulate(device) as simulation:
        found = OPS[name](torch.empty(4, 4, device="meta"))
        assert found.device == real.device == torch.device("meta")
        assert (found.shape, found.dtype) == (real.shape, real.dtype)
        assert not simulation.is_simulated(found)


def test_device_that_is_named_wins() -> None:
    with simulate("cuda") as simulation:
        x = torch.empty(4, 4, device="meta")
        for device in ("cpu", "cuda"):
            found = torch.empty_like(x, device=device)
            assert found.device.type == device
            assert simulation.is_simulated(found)
        layer = nn.Linear(2, 2, device="meta").to_empty(device="cuda")
        assert layer.weight.device.type == "cuda"


def test_meta_tensor_is_distributed_on_meta() -> None:
    with simulate("cuda", world_size=2):
        mesh = init_device_mesh("cuda", (2,))
        found = distribute_tensor(torch.empty(4, 4, device="meta"), mesh, [Shard(0)])
        assert found.device.type == "meta"
        assert found.to_local().shape == (2, 4)


@pytest.mark.parametrize("tp", [1, 2])
def test_model_on_meta_is_sharded_and_then_materialized(tp: int) -> None:
    """As torchtitan does it. Each of four ranks has a quarter of the weights."""
    with simulate("cuda", world_size=4) as simulation:
        mesh = init_device_mesh("cuda", (4 // tp, tp), mesh_dim_names=("dp", "tp"))
        with torch.device("meta"):
            model = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False))
        if tp > 1:
            parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "1": ColwiseParallel()})
        for layer in model:
            fully_shard(layer, mesh=mesh["dp"])
        fully_shard(model, mesh=mesh["dp"])
        assert {each.device.type for each in model.parameters()} == {"meta"}
        model.to_empty(device="cuda")
        for parameter in model.parameters():
            assert isinstance(parameter, DTensor)
            local = parameter.to_local()
            assert local.device.type == "cuda"
            assert simulation.is_simulated(local)
            assert local.numel() == 16
            nn.init.normal_(parameter)
