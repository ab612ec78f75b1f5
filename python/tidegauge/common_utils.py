# SPDX-License-Identifier: BSD-3-Clause
"""`get_untyped_storages`, by the name of torch.distributed._tools.common_utils."""

from tidegauge.trackers.common_utils import get_untyped_storages as get_untyped_storages

__all__ = ["get_untyped_storages"]
