# SPDX-License-Identifier: BSD-3-Clause
"""Applies plans of `tidegauge plan`: `tidegauge.plan.load("plan.json").apply(model)`."""

from tidegauge.planning.plan_file import AppliedPlan, load

__all__ = ["AppliedPlan", "load"]
