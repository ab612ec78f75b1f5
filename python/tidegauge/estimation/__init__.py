# SPDX-License-Identifier: BSD-3-Clause
"""Does a run fit? Simulates real model code and the allocator of the device.

The names below are loaded on first use, because most of them import torch. The modules contract,
plan and target_kind need no torch, so that invalid arguments are reported without it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tidegauge._torch.compat import check_torch_version

if TYPE_CHECKING:
    from tidegauge.estimation.advice import Advice, advise
    from tidegauge.estimation.contract import Contract, ContractError, ModelError
    from tidegauge.estimation.estimator import Estimate, Estimator, RankPeak, estimate
    from tidegauge.estimation.plan import Plan
    from tidegauge.estimation.sweep import SweepPoint, SweepResult, find_largest, sweep_target
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
    "SweepResult",
    "advise",
    "estimate",
    "find_largest",
    "load_contract",
    "sweep_target",
]

_HOMES = {
    "Advice": "advice",
    "Contract": "contract",
    "ContractError": "contract",
    "Estimate": "estimator",
    "Estimator": "estimator",
    "ModelError": "contract",
    "Plan": "plan",
    "RankPeak": "estimator",
    "SweepPoint": "sweep",
    "SweepResult": "sweep",
    "advise": "advice",
    "estimate": "estimator",
    "find_largest": "sweep",
    "load_contract": "targets",
    "sweep_target": "sweep",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    check_torch_version()  # before a module of this package imports torch
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
