# SPDX-License-Identifier: BSD-3-Clause
"""What recomputation costs, by the names of torch.distributed._tools.sac_estimator."""

from tidegauge.planning.auto_checkpointing import OPS_TO_ALWAYS_SKIP as OPS_TO_ALWAYS_SKIP
from tidegauge.planning.sac_estimator import SACEstimator as SACEstimator
from tidegauge.planning.sac_stats import MSPS as MSPS
from tidegauge.planning.sac_stats import SACGreedyOrderMeta as SACGreedyOrderMeta
from tidegauge.planning.sac_stats import SACStats as SACStats
from tidegauge.planning.sac_stats import SACTradeOffStats as SACTradeOffStats

__all__ = ["MSPS", "SACEstimator", "SACGreedyOrderMeta", "SACStats", "SACTradeOffStats"]
