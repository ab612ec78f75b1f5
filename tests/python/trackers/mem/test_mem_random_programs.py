# SPDX-License-Identifier: BSD-3-Clause
"""Runs random programs; `random_programs.py` has their possible lines."""

from __future__ import annotations

import pytest
from random_programs import run_programs


def test_random_programs_have_exact_bytes() -> None:
    run_programs(count=60, lines=25, is_long=False)


@pytest.mark.long
def test_many_random_programs_have_exact_bytes() -> None:
    run_programs(count=600, lines=50, is_long=True)
