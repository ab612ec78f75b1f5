# SPDX-License-Identifier: BSD-3-Clause
"""Finds what to checkpoint, and applies plans of `tidegauge plan`::

tidegauge.plan.find(model, inputs=inputs, device="l4").applied.apply(model)
tidegauge.plan.load("plan.json").apply(model)
"""

from tidegauge.planning.plan_file import AppliedPlan, load
from tidegauge.planning.planner import BudgetError, PlanResult
from tidegauge.planning.questions import find

__all__ = ["AppliedPlan", "BudgetError", "PlanResult", "find", "load"]
