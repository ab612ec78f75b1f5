# SPDX-License-Identifier: BSD-3-Clause
"""Facts about collective ops, by the names of torch.distributed._tools.fake_collectives."""

from tidegauge.planning.collectives import CollectiveOp as CollectiveOp
from tidegauge.planning.collectives import collective_ops as collective_ops
from tidegauge.planning.collectives import functional_collectives as functional_collectives
from tidegauge.planning.collectives import non_functional_collectives as non_functional_collectives
from tidegauge.planning.collectives import sync_ops as sync_ops
