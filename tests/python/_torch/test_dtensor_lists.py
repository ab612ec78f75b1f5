# SPDX-License-Identifier: BSD-3-Clause
"""Optimizers on lists of DTensors: the shortcut of a simulation gives the same result as torch."""

from __future__ import annotations

from typing import Any

import pytest
import tidegauge
import torch
from shardings import counted_propagations, forget_shardings, needs_decompositions
from tidegauge._torch import dtensor_lists
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor._op_schema import OpSchema
from torch.distributed.tensor._sharding_prop import LocalLRUCache, ShardingPropagator


# Each test has its own widths, because torch caches shardings.
@pytest.mark.parametrize(
    ("width", "options", "expected"),
    [
        (8, {"foreach": True}, "aten::_foreach_addcdiv_.ScalarList"),
        (12, {"fused": True}, "aten::_fused_adamw_"),
        (20, {"amsgrad": True}, "aten::_foreach_maximum_.List"),
    ],
)
def test_shardings_equal_those_of_torch(
    monkeypatch: pytest.MonkeyPatch, width: int, options: dict[str, Any], expected: str
) -> None:
    asked: list[str] = []

    def compared(torchs: Any) -> Any:
        def compare(propagator: Any, schema: OpSchema) -> Any:
            ours = dtensor_lists.propagate(torchs, propagator, schema)
            theirs = torchs(propagator, schema)
            if dtensor_lists._find_lists(schema) is not None:
                asked.append(schema.op.name())
                assert ours.output_spec == theirs.output_spec
                assert ours.needs_redistribute == theirs.needs_redistribute
            return theirs

        return compare

    # Older versions look up lists in a cache that keeps the function itself.
    places = (ShardingPropagator, "propagate_op_sharding_non_cached"), (LocalLRUCache, "__call__")
    comparing = [compared(getattr(*place)) for place in places]

    with tidegauge.simulate("cuda", world_size=4):
        for place, function in zip(places, comparing, strict=True):
            monkeypatch.setattr(*place, function)
        net = nn.Sequential(*[nn.Linear(width * n, width * n + width) for n in range(1, 5)]).to(
            "cuda"
        )
        for layer in net:
            fully_shard(layer)
        fully_shard(net)
        optimizer = torch.optim.AdamW(net.parameters(), **options)
        net(torch.ones(2, width, device="cuda")).sum().backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        monkeypatch.undo()
    assert expected in asked


def test_placeholders_of_the_sharding_search_are_not_counted() -> None:
    with tidegauge.simulate(world_size=4):
        net = nn.Sequential(*[nn.Linear(28 * n, 28 * n + 28) for n in range(1, 5)])
        for layer in net:
            fully_shard(layer)
        optimizer = torch.optim.AdamW(net.parameters(), foreach=True)
        tracker = tidegauge.MemTracker()
        with tracker:
            net(torch.ones(2, 28)).sum().backward()
            optimizer.step()
    assert {device.type for device in tracker.get_tracker_snapshot("peak")} == {"cpu"}


@needs_decompositions
def test_decomposition_in_the_sharding_search_is_not_counted() -> None:
    with tidegauge.simulate("cuda", world_size=4):
        mesh = init_device_mesh("cuda", (4,))
        x = distribute_tensor(torch.ones(64, 16, device="cuda"), mesh, [Shard(0)])
        tracker = tidegauge.MemTracker()
        tracker.track_external(x)
        forget_shardings()
        with counted_propagations() as propagations, tracker:
            y = torch.ops.aten.hardswish.default(x)
            assert propagations.by_decomposition == 1
        assert tracker._peak_mem == {torch.device("cuda:0"): 2 * 64 * 16 * 4 // 4}
        del y
