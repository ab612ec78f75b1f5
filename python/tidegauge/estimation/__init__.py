# SPDX-License-Identifier: BSD-3-Clause
"""Does a run fit? Simulates real model code and the allocator of the device."""

from tidegauge._torch.compat import check_torch_version

check_torch_version()  # before a module of this package imports torch

from tidegauge.estimation.advice import Advice, advise
from tidegauge.estimation.contract import Contract, ContractError, ModelError
from tidegauge.estimation.estimator import Estimate, Estimator, RankPeak, estimate
from tidegauge.estimation.plan import Plan
from tidegauge.estimation.sweep import SweepPoint, find_largest, sweep
from tidegauge.estimation.targets import load_contract

__all__ = [
    "Advice",
    "Contract",
    "ContractError",
    "Estimate",
    "Estimator",
    "ModelError",
    "Plan",
    "RankPeak",
    "SweepPoint",
    "advise",
    "estimate",
    "find_largest",
    "load_contract",
    "sweep",
]
