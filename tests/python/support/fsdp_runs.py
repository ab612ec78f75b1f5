# SPDX-License-Identifier: BSD-3-Clause
"""All cases of FSDP2 in worlds of several sizes, and the figures of each."""

from __future__ import annotations

import functools

import pytest
from fsdp_cases import CASES, ONLY_IN_A_WORLD_OF_8
from sharded import Run, run, world
from tidegauge import FSDPMemTracker

ALL = {**CASES, **ONLY_IN_A_WORLD_OF_8}
RUNS = [(name, 8) for name in ALL]
OTHER_WORLDS = [
    pytest.param(name, size, marks=[] if name in ("plain", "mixed_precision") else pytest.mark.long)
    for size in (1, 512)
    for name in CASES
]


@functools.cache
def figures(name: str, size: int, kind: str) -> Run:
    make_tracker = None if kind == "untracked" else FSDPMemTracker
    with world(size):
        return run(ALL[name], make_tracker, is_fake=kind == "fake")
