# SPDX-License-Identifier: BSD-3-Clause
"""Chooses FSDP units, by the names of a pull request for torch.distributed._tools."""

from tidegauge.planning.sharding import CommParams as CommParams
from tidegauge.planning.sharding import CommType as CommType
from tidegauge.planning.sharding import fsdp_milp as fsdp_milp
