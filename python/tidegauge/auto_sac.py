# SPDX-License-Identifier: BSD-3-Clause
"""Plans selective checkpoints, by the names of a pull request for torch.distributed._tools."""

from tidegauge.planning.auto_checkpointing import OPS_TO_ALWAYS_SKIP as OPS_TO_ALWAYS_SKIP
from tidegauge.planning.auto_checkpointing import SACAlgorithm as SACAlgorithm
from tidegauge.planning.auto_checkpointing import SACPolicy as SACPolicy
from tidegauge.planning.auto_checkpointing import apply_auto_sac_policies as apply_auto_sac_policies
from tidegauge.planning.auto_checkpointing import get_auto_sac_policies as get_auto_sac_policies
from tidegauge.planning.auto_checkpointing import (
    get_greedy_checkpointing_policy_per_module as get_greedy_checkpointing_policy_per_module,
)
