# SPDX-License-Identifier: BSD-3-Clause
"""A simulated run equals the real one, event by event and operator by operator."""

from __future__ import annotations

from pathlib import Path

import pytest
from faithful import Program, compare_events, compare_ops, first_difference
from fsdp_cases import CASES, ONLY_IN_A_WORLD_OF_8
from programs import IN_A_WORLD, PROGRAMS, adamw
from sharded import WIDTH, world

pytestmark = pytest.mark.filterwarnings("ignore")

UNIFORM_ROUTING = {"transformers, mixtral": "which experts get a token depends on data"}
"""Programs whose control flow depends on data, and the reason."""
FAITHFUL = [name for name in PROGRAMS if name not in UNIFORM_ROUTING]


@pytest.mark.parametrize("name", FAITHFUL)
def test_events_equal_those_of_the_real_run(name: str, tmp_path: Path) -> None:
    assert compare_events(PROGRAMS[name], tmp_path) is None


@pytest.mark.parametrize("name", FAITHFUL)
def test_bytes_after_every_operator_equal_the_real_run(name: str) -> None:
    assert compare_ops(PROGRAMS[name]) is None


@pytest.mark.parametrize("name", IN_A_WORLD)
def test_events_of_a_rank_equal_those_of_the_real_run(name: str, tmp_path: Path) -> None:
    size, make = IN_A_WORLD[name]
    with world(size):
        assert compare_events(make, tmp_path) is None
        assert compare_ops(make) is None


def sharded_program(name: str) -> Program:
    import torch

    make, train = {**CASES, **ONLY_IN_A_WORLD_OF_8}[name]
    model, x = make(), torch.randn(8, WIDTH)
    optimizer = adamw(foreach=False)(model.parameters())

    def run() -> None:
        train(model, x, 0)
        optimizer.step()
        optimizer.zero_grad()

    return Program(model, optimizer, run)


IN_SHORT = ("plain", "mixed_precision", "offload", "keeps_unsharded", "hsdp", "checkpoint")
SHARDED = [
    *((name, 8) for name in {**CASES, **ONLY_IN_A_WORLD_OF_8}),
    *((name, 2) for name in IN_SHORT),
]


@pytest.mark.parametrize(("name", "size"), SHARDED)
def test_events_of_a_shard_equal_those_of_the_real_run(
    name: str, size: int, tmp_path: Path
) -> None:
    with world(size):
        assert compare_events(lambda: sharded_program(name), tmp_path) is None


@pytest.mark.parametrize("name", IN_SHORT)
def test_bytes_of_a_shard_after_every_operator_equal_the_real_run(name: str) -> None:
    with world(8):
        assert compare_ops(lambda: sharded_program(name)) is None


def test_first_difference_is_shown() -> None:
    assert first_difference(["a", "b"], ["a", "b"]) is None
    assert first_difference(["a", "b"], ["a", "c"]) == (
        "number 1:\n  both:      a\n  real:      b\n  simulated: c"
    )
    assert first_difference(["a"], []) == "number 0:\n  real:      a\n  simulated: None"
