# SPDX-License-Identifier: BSD-3-Clause
"""Memory limits of tests, for pytest (docs/howto/ci.md).

    @pytest.mark.memory(budget="60 MiB", no_growth=True)
    def test_training_step(): ...

The body of the test is tracked. It fails if the peak of a device exceeds the budget, which is a
size or a budget file, or if the test keeps more and more memory from step to step.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tidegauge._util.suggestions import did_you_mean

_OPTIONS = ("budget", "no_growth")
_DESCRIPTION = (
    "memory(budget=None, no_growth=False): fail if the test's peak exceeds the budget, a size such "
    'as "60 MiB" or a budget file, or if memory grows from step to step (tidegauge)'
)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _DESCRIPTION)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    marker = item.get_closest_marker("memory")
    if marker is None:
        yield
        return
    limits = _read_marker(item, marker)
    from tidegauge.tracking import track  # imports torch

    memory = track()
    with memory:
        yield
    problems = _find_problems(memory.summary, **limits)
    if problems:
        pytest.fail("\n".join([*problems, "", str(memory)]), pytrace=False)


def _read_marker(item: pytest.Item, marker: pytest.Mark) -> dict[str, Any]:
    if marker.args:
        _refuse(item, f"memory takes keywords only (got {marker.args[0]!r})")
    for name in marker.kwargs:
        if name not in _OPTIONS:
            _refuse(item, f"memory has no option '{name}': {did_you_mean(name, _OPTIONS)}")
    if not any(marker.kwargs.values()):
        _refuse(item, "memory needs a limit: budget=... or no_growth=True")
    budget = marker.kwargs.get("budget")
    if isinstance(budget, str) and budget.endswith(".toml"):
        budget = str(item.config.rootpath / Path(budget))
    return {"budget": budget, "no_growth": bool(marker.kwargs.get("no_growth"))}


def _refuse(item: pytest.Item, text: str) -> None:
    raise pytest.UsageError(f"{item.nodeid}: {text}")


def _find_problems(summary: Any, budget: Any, no_growth: bool) -> list[str]:
    from tidegauge.report.budget import BudgetError, find_peak_breaches, read_peak_budget

    problems = []
    if budget is not None:
        try:
            limits = read_peak_budget(budget)
        except (BudgetError, OSError) as error:
            raise pytest.UsageError(str(error)) from None
        problems += [breach.text for breach in find_peak_breaches(limits, summary)]
    if no_growth:
        problems += [str(each) for each in summary.growth if each.is_large]
    return problems
