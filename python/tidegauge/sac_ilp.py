# SPDX-License-Identifier: BSD-3-Clause
"""Chooses what to recompute or to shard, by the names of torch.distributed._tools.sac_ilp."""

from tidegauge.planning.auto_checkpointing import get_auto_sac_policies as get_auto_sac_policies
from tidegauge.planning.checkpointing import SACDecision as SACDecision
from tidegauge.planning.checkpointing import (
    get_optimal_checkpointing_policy_per_module as get_optimal_checkpointing_policy_per_module,
)
from tidegauge.planning.checkpointing import sac_milp as sac_milp
from tidegauge.planning.sharding import CommParams as CommParams
from tidegauge.planning.sharding import CommType as CommType
from tidegauge.planning.sharding import fsdp_milp as fsdp_milp
