# SPDX-License-Identifier: BSD-3-Clause
"""The page of simulated runs, for `estimate` and `plan`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidegauge.cli.html import make_page

if TYPE_CHECKING:
    from tidegauge.estimation import Estimate, Estimator
    from tidegauge.report.page import Page


def make_simulated_page(
    title: str, estimator: Estimator, estimates: Sequence[Estimate], labels: Sequence[str]
) -> Page:
    """The simulated runs side by side, each with a label."""
    from tidegauge.estimation.time_text import describe_parts
    from tidegauge.report.page import MOST_MOMENTS
    from tidegauge.report.run import Run

    room = MOST_MOMENTS // len(estimates)
    runs = [Run(estimator.trace_of(each), max_moments=room) for each in estimates]
    names = [f"{title}, {label}" for label in labels]
    memories = [estimator.memory_of(each) for each in estimates]
    times = [describe_parts(each.time) if each.time else None for each in estimates]
    return make_page(title, runs, labels, names, memories, times)
