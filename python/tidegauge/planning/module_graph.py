# SPDX-License-Identifier: BSD-3-Clause
"""What each module of a model needs, as a tree that planners read."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict, cast

import torch
from torch import nn

from tidegauge.trackers.mem_tracker import _MemRefType, _ModMemStats, _ModState

try:
    import numpy as np
except ImportError as error:
    raise ImportError("the tree of modules needs numpy: run `pip install numpy`") from error


class ModOrder(TypedDict):
    """The names of modules in the order in which their forwards and backwards begin and end."""

    fw_pre_order: list[str]
    bw_pre_order: list[str]
    fw_post_order: list[str]
    bw_post_order: list[str]


class ModRuntime(TypedDict):
    """Milliseconds."""

    fw: float
    bw: float


class ModStats(TypedDict):
    """Bytes, and times in milliseconds, of the last call of a module, with all that is below it."""

    fqn: str
    param_per_module: int
    grad_per_module: int
    grad_total: int  # gradients of the model when its backward begins
    act_fw_per_module: int  # what its forward leaves, without its output
    act_bw_per_module: int  # activations of the model at its peak in backward
    act_grad_per_module: int  # temporaries that its backward adds
    act_total: int  # activations of the model when its forward ends
    input_per_module: int
    output_per_module: int
    fw_runtime_per_module: float
    bw_runtime_per_module: float
    is_leaf: bool  # it cannot be checkpointed: it has no children or no ops
    sac_runtime: float
    sac_memory: int
    n_segments: int
    slopes: list[float]
    intercepts: list[float]
    breakpoints: list[float]
    tradeoff_curve: OrderedDict[float, float]
    # What upstream leaves out (`aggregate_stats`, `whole_step`):
    opt_total: NotRequired[int]  # optimizer states
    other_total: NotRequired[int]  # at its peak in backward, whatever the rest does not explain
    recompute_work: NotRequired[int]  # what its forward needs more than it leaves
    step_opt: NotRequired[int]  # of the root: optimizer states and temporaries in their step
    step_other: NotRequired[int]  # of the root: buffers and temporaries at the peak of the step


class ModuleInfo(TypedDict):
    mod_order: ModOrder
    mod_stats: list[ModStats]


class Node(ModStats):
    index: int  # by the beginning of the first forward
    pos_fw_post_order: int  # by the end of the first forward


class Graph:
    """The modules of a model in the order of their forwards, the root first.

    `ad_matrix[i][j]` is 1 if module j is module i or below it.
    """

    def __init__(self, n: int) -> None:
        self.nodes: list[Node] = []
        self.name2node: dict[str, Node] = {}
        self.ad_matrix = np.zeros((n, n))
        self.fw_post_order: list[str] = []

    def add_node(self, node: Node) -> None:
        self.nodes.append(node)
        self.name2node[node["fqn"]] = node


def aggregate_stats(
    model: nn.Module,
    mem_tracker: Any,
    runtime_estimator: Any,
    sac_estimator: Any,
    dev: torch.device | str | int,
    *,
    whole_step: bool = True,
) -> ModuleInfo:
    """Collects what a `MemTracker`, a `RuntimeEstimator` and a `SACEstimator` saw of a model.

    `whole_step` also counts optimizer states, gradients and temporaries that are alive beside a
    module, and the working memory of a recomputation. Plans made without them, as upstream makes
    them, do not keep their budget.
    """
    device = _full_device(dev)
    sac_estimator.pwlf_sac_tradeoff_curve()
    all_stats: list[ModStats] = []
    for module in model.modules():
        memory = mem_tracker.memory_tracking.get(module)
        if memory is None or not memory.snapshots.get(_ModState.POST_FW):
            continue  # not called
        stats = _memory_stats(memory, device)
        runtime = runtime_estimator.mod_runtimes.get(memory.mod_fqn, {})
        stats["fw_runtime_per_module"] = runtime.get("fw", 0.0)
        stats["bw_runtime_per_module"] = runtime.get("bw", 0.0)
        tradeoff = sac_estimator.sac_mod_tradeoff_stats.get(memory.mod_fqn)
        stats["is_leaf"] = tradeoff is None
        stats["sac_runtime"] = tradeoff.sac_runtime if tradeoff else 0
        stats["sac_memory"] = tradeoff.sac_memory if tradeoff else 0
        stats["n_segments"] = tradeoff.n_segments if tradeoff else 0
        stats["slopes"] = list(tradeoff.slopes) if tradeoff else []
        stats["intercepts"] = list(tradeoff.intercepts) if tradeoff else []
        stats["breakpoints"] = list(tradeoff.fit_breaks) if tradeoff else []
        stats["tradeoff_curve"] = OrderedDict(tradeoff.tradeoff_curve if tradeoff else {})
        all_stats.append(stats)
    if whole_step and all_stats:
        root = max(all_stats, key=lambda stats: stats["param_per_module"])
        _add_step(root, mem_tracker.get_tracker_snapshot("peak"), device)
    else:
        for stats in all_stats:
            for name in ("opt_total", "other_total", "recompute_work"):
                del stats[name]  # type: ignore[misc]
    order: ModOrder = {
        "fw_pre_order": list(runtime_estimator.mod_fw_pre_order),
        "bw_pre_order": list(runtime_estimator.mod_bw_pre_order),
        "fw_post_order": list(runtime_estimator.mod_fw_post_order),
        "bw_post_order": list(runtime_estimator.mod_bw_post_order),
    }
    return {"mod_order": order, "mod_stats": all_stats}


def _full_device(dev: torch.device | str | int) -> torch.device:
    device = torch.device("cuda", dev) if isinstance(dev, int) else torch.device(dev)
    return torch.device("cuda", 0) if device == torch.device("cuda") else device


def _memory_stats(memory: _ModMemStats, device: torch.device) -> ModStats:
    """Without times and trade-offs."""

    def last(state: _ModState) -> Mapping[str, int]:
        snapshots = memory.snapshots.get(state)
        return snapshots[-1].get(device, {}) if snapshots else {}

    before, after, top = (
        last(state) for state in (_ModState.PRE_FW, _ModState.POST_FW, _ModState.PEAK_FW)
    )
    backward, peak = last(_ModState.PRE_BW), last(_ModState.PEAK_BW)
    acts = {id(each): each.get(_MemRefType.ACT, 0) for each in (before, after, top, peak)}
    output = getattr(memory, "output_mem", 0)
    temporaries = peak.get(_MemRefType.TEMP, 0) - backward.get(_MemRefType.TEMP, 0)
    explained = (
        peak.get(_MemRefType.PARAM, 0)
        + backward.get(_MemRefType.GRAD, 0)
        + acts[id(after)]
        + temporaries
        + peak.get(_MemRefType.OPT, 0)
    )
    return cast(
        ModStats,
        {
            "fqn": memory.mod_fqn,
            "param_per_module": memory.parameter_mem,
            "grad_per_module": memory.parameter_mem,
            "grad_total": backward.get(_MemRefType.GRAD, 0),
            "act_fw_per_module": max(0, acts[id(after)] - acts[id(before)] - output),
            "act_bw_per_module": acts[id(peak)],
            "act_grad_per_module": temporaries,
            "act_total": acts[id(after)],
            "input_per_module": memory.input_mem,
            "output_per_module": output,
            "opt_total": peak.get(_MemRefType.OPT, 0),
            "other_total": max(0, peak.get("Total", 0) - explained),
            "recompute_work": max(0, acts[id(top)] - acts[id(after)]),
        },
    )


def _add_step(root: ModStats, peak: Mapping[torch.device, Any], device: torch.device) -> None:
    """What no checkpoint changes: the optimizer step, if the highest moment was there."""
    split = peak.get(device, {})
    root["step_opt"] = split.get(_MemRefType.OPT, 0)
    root["step_other"] = sum(
        split.get(kind, 0) for kind in (_MemRefType.BUFFER, _MemRefType.TEMP, _MemRefType.OTH)
    )
    if split.get(_MemRefType.ACT, 0) > root["act_total"] // 2:  # in forward or backward
        root["step_opt"] = root["step_other"] = 0


def parse_module_info(module_info: ModuleInfo) -> Graph:
    """The tree of the modules that ran.

    A module that ran several times has the place of its first call; one without a place in the
    order did not run and is left out. Raises ValueError if nothing remains.
    """
    first = {
        name: i for i, name in reversed(list(enumerate(module_info["mod_order"]["fw_pre_order"])))
    }
    last = module_info["mod_order"]["fw_post_order"]
    known = {stats["fqn"]: stats for stats in module_info["mod_stats"]}
    names = sorted(known.keys() & first.keys() & set(last), key=lambda name: first[name])
    if not names:
        raise ValueError(
            "no module of the statistics is in `fw_pre_order` and `fw_post_order`; "
            "run the same model under all trackers"
        )
    graph = Graph(len(names))
    graph.fw_post_order = [name for name in dict.fromkeys(last) if name in known and name in first]
    places = {name: i for i, name in enumerate(graph.fw_post_order)}
    for i, name in enumerate(names):
        node = cast(Node, dict(known[name]))
        node["index"] = i
        node["pos_fw_post_order"] = places[name]
        graph.add_node(node)
    for i, ancestor in enumerate(names):
        for j in range(i, len(names)):
            graph.ad_matrix[i][j] = is_self_or_submodule(names[j], ancestor)
    return graph


def is_self_or_submodule(name_descendant: str, name_ancestor: str) -> bool:
    return name_descendant == name_ancestor or is_submodule(name_descendant, name_ancestor)


def is_submodule(name_descendant: str, name_ancestor: str) -> bool:
    """True if the first module is below the second."""
    return name_descendant.startswith(name_ancestor + ".")


def display_bytes(b: int, unit: str = "MiB") -> str:
    """The size in KiB, MiB or GiB with two decimals; in bytes for any other unit."""
    power = {"KiB": 10, "MiB": 20, "GiB": 30}.get(unit)
    return f"{b:.2f} bytes" if power is None else f"{b / 2**power:.2f} {unit}"


def memory_without_plan(graph: Graph, index: int, world_size: int = 1) -> float:
    """Bytes at the peak of a module's backward if nothing is recomputed or gathered."""
    node = graph.nodes[index]
    sharded = graph.nodes[0]["param_per_module"] + node["grad_total"] + node.get("opt_total", 0)
    local = node["act_grad_per_module"] + node["act_total"] + node.get("other_total", 0)
    return sharded / world_size + local


def memory_of_step(graph: Graph, world_size: int = 1) -> float:
    """Bytes in the optimizer step; 0 if the graph does not know it."""
    root = graph.nodes[0]
    if not root.get("step_opt", 0):
        return 0.0
    sharded = root["param_per_module"] + root["grad_per_module"] + root["step_opt"]
    return sharded / world_size + root.get("step_other", 0)


def get_peak_memory_runtime_baseline(graph: Graph) -> tuple[int, float]:
    """The peak in bytes, and the milliseconds of forward and backward, of a step on one device that
    recomputes nothing. Optimizer states count if the graph has them (`aggregate_stats`)."""
    root = graph.nodes[0]
    peak = max(
        memory_of_step(graph), *(memory_without_plan(graph, i) for i in range(len(graph.nodes)))
    )
    return math.ceil(peak), root["fw_runtime_per_module"] + root["bw_runtime_per_module"]
