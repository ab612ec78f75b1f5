# SPDX-License-Identifier: BSD-3-Clause
"""Tests marked `long` run only when asked for: `pytest --long`, or TIDEGAUGE_LONG=1."""

import os

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the long tests too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--long") or os.environ.get("TIDEGAUGE_LONG") == "1":
        return
    skip = pytest.mark.skip(reason="long; run `make test-long`")
    for item in items:
        if "long" in item.keywords:
            item.add_marker(skip)
