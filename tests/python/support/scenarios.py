# SPDX-License-Identifier: BSD-3-Clause
"""All scenarios of MemTracker's tests by name, and their records."""

from __future__ import annotations

import functools

from runs import Kind, Record, run_scenario
from scenarios_models import MODELS
from scenarios_programs import PROGRAMS
from scenarios_tensors import TENSORS
from scenarios_training import TRAINING

SCENARIOS = MODELS | TRAINING | TENSORS | PROGRAMS


@functools.cache
def record(kind: Kind, name: str) -> Record:
    return run_scenario(kind, SCENARIOS[name])
