# SPDX-License-Identifier: BSD-3-Clause
"""`RuntimeEstimator`, by the name of torch.distributed._tools.runtime_estimator."""

from tidegauge.planning.runtime_estimator import RuntimeEstimator as RuntimeEstimator

__all__ = ["RuntimeEstimator"]
