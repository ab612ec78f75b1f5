# SPDX-License-Identifier: BSD-3-Clause
"""torch's own tools that use ModTracker give the same results with ours in its place."""

from __future__ import annotations

import contextlib
import importlib.util
import io
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
import tidegauge
import torch
import torch.distributed as dist
from models import Checkpointed, Net, Residual, inputs, train
from observe import Tracker, UpstreamModTracker, names
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools import mod_tracker as upstream_module
from torch.distributed._tools import sac_estimator
from torch.distributed._tools.common_utils import get_untyped_storages
from torch.distributed._tools.runtime_estimator import RuntimeEstimator
from torch.distributed._tools.sac_estimator import SACEstimator
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.debug import _comm_mode
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._debug_mode import DebugMode


@pytest.fixture(scope="module")
def mesh() -> Iterator[Any]:
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    yield init_device_mesh("cpu", (2,))
    dist.destroy_process_group()


def import_comm_mode(tracker: type[Any]) -> ModuleType:
    """A second copy of torch's module, whose base class is `tracker`."""
    assert _comm_mode.__file__ is not None
    spec = importlib.util.spec_from_file_location("comm_mode_copy", _comm_mode.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upstream_module, "ModTracker", tracker)
        spec.loader.exec_module(module)
    assert tracker in module._CommModeModuleTracker.__mro__
    return module


def shard(model: nn.Module, mesh: Any, prefix: str = "") -> nn.Module:
    plan = {f"{prefix}fc1": ColwiseParallel(), f"{prefix}fc2": RowwiseParallel()}
    return parallelize_module(model, mesh, plan)


def comm_results(tracker: type[Any], build: Callable[[], nn.Module]) -> dict[str, Any]:
    torch.manual_seed(0)
    model = build()
    mode = import_comm_mode(tracker).CommDebugMode()
    with mode:
        train(model)
    modules = mode.advanced_module_tracker
    return {
        "counts": dict(mode.get_comm_counts()),
        "by module": {
            name: {phase: dict(counts) for phase, counts in phases.items()}
            for name, phases in mode.comm_module_counts.items()
        },
        "table": mode.generate_comm_debug_tracing_table(noise_level=3),
        "helper": modules.module_helper_dict,
        "parents": modules.module_parents_dict,
        "children": modules.parent_dict,
        "sharding": modules.sharding_dict,
        "parameters": {
            name: list(parameters) for name, parameters in modules.module_parameters_dict.items()
        },
        "at end": names(modules.parents),
    }


@pytest.mark.parametrize("kind", ["net", "checkpoint", "reentrant"])
def test_comm_debug_mode(mesh: Any, kind: str) -> None:
    builders: dict[str, Callable[[], nn.Module]] = {
        "net": lambda: shard(Net(), mesh),
        "checkpoint": lambda: shard(Checkpointed(False), mesh, "body."),
        "reentrant": lambda: shard(Checkpointed(True), mesh, "body."),
    }
    theirs = comm_results(UpstreamModTracker, builders[kind])
    mine = comm_results(tidegauge.ModTracker, builders[kind])
    assert sum(mine["counts"].values()) > 0
    assert mine == theirs


def test_comm_debug_mode_leaves_no_hooks(mesh: Any) -> None:
    def hooks() -> list[int]:
        module = nn.modules.module
        return [len(module._global_forward_pre_hooks), len(module._global_forward_hooks)]

    before = hooks()
    comm_results(tidegauge.ModTracker, lambda: shard(Net(), mesh))
    assert hooks() == before
    assert not nn.Module.__call__.__module__.startswith("tidegauge")


def test_comm_debug_mode_may_be_used_again(mesh: Any) -> None:
    mode = import_comm_mode(tidegauge.ModTracker).CommDebugMode()
    model = shard(Net(), mesh)
    totals = []
    for _ in range(2):
        with mode:
            train(model)
        totals.append(mode.get_total_counts())
    assert totals[0] == totals[1] > 0


def debug_text(tracker: type[Any], model: nn.Module, x: torch.Tensor) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upstream_module, "ModTracker", tracker)
        mode = DebugMode(record_nn_module=True)
    assert isinstance(mode.module_tracker, tracker)
    with mode:
        train(model, x)
    return mode.debug_string()


@pytest.mark.parametrize("build", [Net, Residual, lambda: Checkpointed(False)])
def test_debug_mode(build: Callable[[], nn.Module]) -> None:
    model = build()
    theirs = debug_text(UpstreamModTracker, model, inputs(requires_grad=False))
    model.zero_grad()
    assert "[nn.Mod]" in theirs
    assert debug_text(tidegauge.ModTracker, model, inputs(requires_grad=False)) == theirs


def test_debug_mode_sees_no_operators_of_the_tracker_itself() -> None:
    """Upstream makes a view of each leaf input to find its node."""
    model = nn.Tanh()
    x = inputs()
    assert debug_text(UpstreamModTracker, model, x).count("aten::view") == 1
    assert debug_text(tidegauge.ModTracker, model, x).count("aten::view") == 0


Estimate = Callable[[Any, Any, Any], tuple[Any, float]]


def one_each(namespace: str) -> Estimate:
    """Replaces the estimates, which need CUDA, by 1 ms for each operator of a namespace."""

    def estimate(func: Any, args: Any, kwargs: Any) -> tuple[Any, float]:
        return func(*args, **(kwargs or {})), float(func.namespace == namespace)

    return estimate


def operators_by_module(
    tracker: Tracker, build: Callable[[], nn.Module], namespace: str = "aten"
) -> dict[str, Any]:
    with FakeTensorMode(), contextlib.redirect_stdout(io.StringIO()):
        model, x = build(), inputs(requires_grad=False)
        estimator = RuntimeEstimator()("operator-level-cost-model")
        estimator._mod_tracker = tracker
        estimator._estimate = one_each(namespace)
        with estimator:
            train(model, x)
    return {
        "operators": {name: dict(times) for name, times in estimator.mod_runtimes.items()},
        "total": estimator.total_runtime,
        "forward": [estimator.mod_fw_pre_order, estimator.mod_fw_post_order],
        "backward": [estimator.mod_bw_pre_order, estimator.mod_bw_post_order],
    }


@pytest.mark.parametrize("build", [Residual, Net])
def test_runtime_estimator(build: Callable[[], nn.Module]) -> None:
    theirs = operators_by_module(UpstreamModTracker(), build)
    mine = operators_by_module(tidegauge.ModTracker(), build)
    name = build().__class__.__name__
    assert mine["operators"][name]["fw"] > 0
    assert mine["operators"] == theirs["operators"]
    assert mine["total"] == theirs["total"]
    assert mine["forward"] == theirs["forward"]
    assert [sorted(order) for order in mine["backward"]] == [
        sorted(order) for order in theirs["backward"]
    ]


def test_device_lookup_before_a_node_belongs_to_that_node() -> None:
    """Under a fake mode, autograd calls `prim.device` before the hooks of the next node run."""

    def asked(tracker: Tracker) -> dict[str, float]:
        operators = operators_by_module(tracker, Net, namespace="prim")["operators"]
        return {name: times["bw"] for name, times in operators.items() if times.get("bw")}

    theirs, mine = asked(UpstreamModTracker()), asked(tidegauge.ModTracker())
    assert mine["Net.fc1"] == theirs["Net.fc1"] + 1  # upstream counts it for Net.act
    assert mine["Net"] == theirs["Net"] + 1
    assert mine["Global"] == theirs["Global"]


def sac_results(tracker: Tracker, build: Callable[[], nn.Module]) -> Any:
    kept: set[torch.UntypedStorage] = set()

    def keep_storages(tensor: torch.Tensor) -> set[torch.UntypedStorage]:
        storages = get_untyped_storages(tensor)
        kept.update(storages)
        return storages

    with FakeTensorMode(), pytest.MonkeyPatch.context() as patch:
        # SACEstimator compares addresses of storages, which torch may reuse after a free.
        patch.setattr(sac_estimator, "get_untyped_storages", keep_storages)
        model, x = build(), inputs(requires_grad=False)
        estimator = SACEstimator()("operator-level-cost-model")
        estimator._mod_tracker = tracker
        estimator._estimate_runtime = one_each("aten")
        with estimator:
            model(x)
    return estimator.sac_mod_stats, estimator.sac_mod_greedy_order_meta


@pytest.mark.parametrize("build", [Residual, lambda: nn.Sequential(Net(), Residual())])
def test_sac_estimator(build: Callable[[], nn.Module]) -> None:
    theirs = sac_results(UpstreamModTracker(), build)
    assert len(theirs[0]) > 0
    assert repr(sac_results(tidegauge.ModTracker(), build)) == repr(theirs)
