# SPDX-License-Identifier: BSD-3-Clause
"""The tree of modules that planners read, beside upstream's."""

from __future__ import annotations

import copy
from typing import cast

import pytest
from llm_graph import llm_info
from tidegauge import ilp_utils as ours
from tidegauge.ilp_utils import ModuleInfo
from torch.distributed._tools import ilp_utils as upstream

NAMES = llm_info()["mod_order"]["fw_pre_order"]


def shuffled() -> ModuleInfo:
    """The head, which is last in the forward, is defined before the blocks."""
    info = llm_info()
    root, *blocks, head = info["mod_stats"]
    info["mod_stats"] = [root, head, *blocks]
    return info


def test_nodes_are_in_the_order_of_the_forward() -> None:
    graph = ours.parse_module_info(shuffled())
    assert [node["fqn"] for node in graph.nodes] == NAMES
    assert [node["index"] for node in graph.nodes] == list(range(14))
    theirs = upstream.parse_module_info(cast(upstream.ModuleInfo, shuffled()))
    assert [node["fqn"] for node in theirs.nodes][:2] == ["Transformer", "Transformer.output"]


def test_tree_equals_that_of_upstream() -> None:
    graph = ours.parse_module_info(llm_info())
    theirs = upstream.parse_module_info(cast(upstream.ModuleInfo, llm_info()))
    assert (graph.ad_matrix == theirs.ad_matrix).all()
    assert graph.fw_post_order == theirs.fw_post_order
    assert graph.nodes == theirs.nodes
    assert graph.name2node.keys() == theirs.name2node.keys()
    assert ours.get_peak_memory_runtime_baseline(
        graph
    ) == upstream.get_peak_memory_runtime_baseline(theirs)


def test_module_that_runs_twice_has_the_place_of_its_first_call() -> None:
    info = llm_info()
    info["mod_order"]["fw_pre_order"] = [*NAMES, NAMES[1]]
    info["mod_order"]["fw_post_order"].insert(5, NAMES[1])
    with pytest.raises(AssertionError):
        upstream.parse_module_info(cast(upstream.ModuleInfo, copy.deepcopy(info)))
    graph = ours.parse_module_info(info)
    assert [node["fqn"] for node in graph.nodes] == NAMES
    assert graph.name2node[NAMES[1]]["pos_fw_post_order"] == 2


def test_module_that_never_runs_is_left_out() -> None:
    info = llm_info()
    info["mod_order"]["fw_pre_order"] = NAMES[:-1]
    with pytest.raises(AssertionError):
        upstream.parse_module_info(cast(upstream.ModuleInfo, copy.deepcopy(info)))
    graph = ours.parse_module_info(info)
    assert [node["fqn"] for node in graph.nodes] == NAMES[:-1]
    assert "Transformer.output" not in graph.fw_post_order


def test_statistics_of_another_model_are_refused() -> None:
    info = llm_info()
    info["mod_order"]["fw_pre_order"] = ["Other"]
    with pytest.raises(ValueError, match="run the same model under all trackers"):
        ours.parse_module_info(info)


@pytest.mark.parametrize(
    ("below", "above", "upstream_answer"),
    [
        ("Net.a.b", "Net.a", True),
        ("Net.a", "Net.a", False),
        ("Net.ab.c", "Net.a", False),
        ("Net.a.Net.b", "a.Net", True),
        ("SubNet.a", "Net", True),
    ],
)
def test_name_below_another_begins_with_it(below: str, above: str, upstream_answer: bool) -> None:
    assert ours.is_submodule(below, above) is below.startswith(f"{above}.")
    assert upstream.is_submodule(below, above) is upstream_answer
    assert ours.is_self_or_submodule(above, above)


@pytest.mark.parametrize("unit", ["KiB", "MiB", "GiB", "B"])
def test_sizes_are_displayed_as_by_upstream(unit: str) -> None:
    assert ours.display_bytes(123456789, unit) == upstream.display_bytes(123456789, unit)
