# SPDX-License-Identifier: BSD-3-Clause
"""What each module of a model needs, by the names of torch.distributed._tools.ilp_utils."""

from tidegauge.planning.module_graph import Graph as Graph
from tidegauge.planning.module_graph import ModOrder as ModOrder
from tidegauge.planning.module_graph import ModRuntime as ModRuntime
from tidegauge.planning.module_graph import ModStats as ModStats
from tidegauge.planning.module_graph import ModuleInfo as ModuleInfo
from tidegauge.planning.module_graph import Node as Node
from tidegauge.planning.module_graph import aggregate_stats as aggregate_stats
from tidegauge.planning.module_graph import display_bytes as display_bytes
from tidegauge.planning.module_graph import (
    get_peak_memory_runtime_baseline as get_peak_memory_runtime_baseline,
)
from tidegauge.planning.module_graph import is_self_or_submodule as is_self_or_submodule
from tidegauge.planning.module_graph import is_submodule as is_submodule
from tidegauge.planning.module_graph import parse_module_info as parse_module_info
