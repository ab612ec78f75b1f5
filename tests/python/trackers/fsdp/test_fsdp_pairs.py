# SPDX-License-Identifier: BSD-3-Clause
"""Combinations of FSDP2 options: each pair of values of two options occurs at least once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from fsdp_cases import accumulate, evaluate, train, user_unshard
from sharded import (
    BLOCKS,
    Make,
    Net,
    Train,
    flat_mesh,
    fully_shard_parts,
    has_equal_parameters,
    run,
    two_level_mesh,
    world,
)
from tidegauge import FSDPMemTracker
from torch import nn
from torch.distributed._composable import checkpoint
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy

pytestmark = pytest.mark.filterwarnings("ignore")

HALF, SINGLE = torch.bfloat16, torch.float32
OPTIONS: dict[str, dict[str, Any]] = {
    "after_forward": {"reshard": True, "keep": False, "keep_a_half": "half"},
    "precision": {
        "single": MixedPrecisionPolicy(),
        "mixed": MixedPrecisionPolicy(HALF, SINGLE),
        "half": MixedPrecisionPolicy(HALF, HALF, HALF),
    },
    "offload": {"none": OffloadPolicy(), "cpu": CPUOffloadPolicy(False)},
    "mesh": {"flat": flat_mesh, "two_level": two_level_mesh},
    "recompute": {"none": None, "composable": checkpoint, "wrapper": checkpoint_wrapper},
    "units": {"blocks": "blocks", "root": "root", "pair": "pair", "nested": "nested"},
    "parameters": {"all": None, "frozen": "narrow", "one_frozen_block": "blocks.0"},
    "prefetch": {"implicit": False, "explicit": True},
    "step": {"train": train, "accumulate": accumulate, "unshard": user_unshard, "eval": evaluate},
    "after_backward": {"reshard": True, "keep": False},
}
Choice = tuple[str, ...]
"""one value per option, in their order"""


Pair = tuple[int, str, int, str]
"""column and value of one option, and of a later one"""
NAMES = [list(values) for values in OPTIONS.values()]
COLUMNS = list(itertools.combinations(range(len(NAMES)), 2))


def all_pairs() -> Iterator[Choice]:
    """Greedy: each value of the next choice adds the most new pairs."""
    missing = {(i, a, j, b) for i, j in COLUMNS for a, b in itertools.product(NAMES[i], NAMES[j])}
    while missing:
        i, a, j, b = min(missing)
        chosen = {i: a, j: b}
        for column, values in enumerate(NAMES):
            if column not in chosen:
                gains = {value: _count_new(missing, chosen, column, value) for value in values}
                chosen[column] = max(values, key=gains.__getitem__)
        missing -= {(k, chosen[k], m, chosen[m]) for k, m in COLUMNS}
        yield tuple(chosen[column] for column in range(len(NAMES)))


def _count_new(missing: set[Pair], chosen: dict[int, str], column: int, value: str) -> int:
    pairs = (
        (k, v, column, value) if k < column else (column, value, k, v) for k, v in chosen.items()
    )
    return sum(pair in missing for pair in pairs)


def make_case(choice: Choice) -> tuple[Make, Train]:
    chosen = {
        name: values[value] for (name, values), value in zip(OPTIONS.items(), choice, strict=True)
    }

    def make() -> nn.Module:
        model = Net()
        for name, parameter in model.named_parameters():
            part = chosen["parameters"]
            parameter.requires_grad_(part is None or part not in name)
        _set_recompute(model, chosen["recompute"])
        mesh = chosen["mesh"]()
        after_forward = chosen["after_forward"]
        fully_shard_parts(
            model,
            chosen["units"],
            mesh=mesh,
            reshard_after_forward=mesh.size(-1) // 2 if after_forward == "half" else after_forward,
            mp_policy=chosen["precision"],
            offload_policy=chosen["offload"],
        )
        model.set_reshard_after_backward(chosen["after_backward"])
        if chosen["prefetch"] and chosen["units"] != "root":
            for i in range(BLOCKS - 1):
                model.blocks[i].set_modules_to_forward_prefetch([model.blocks[i + 1]])
                model.blocks[i + 1].set_modules_to_backward_prefetch([model.blocks[i]])
        return model

    step = chosen["step"]
    if step is user_unshard and chosen["units"] == "root":
        step = train  # only units can be unsharded
    return make, step


def _set_recompute(model: Net, how: Callable[[nn.Module], Any] | None) -> None:
    for i, block in enumerate(model.blocks):
        if how is checkpoint_wrapper:
            model.blocks[i] = how(block)
        elif how is not None:
            how(block)


CHOICES = list(all_pairs())
SAMPLE = CHOICES[::4]


def _mark(choice: Choice) -> Any:
    marks = [] if choice in SAMPLE else [pytest.mark.long]
    return pytest.param(choice, id="-".join(choice), marks=marks)


@pytest.mark.parametrize("choice", [_mark(choice) for choice in CHOICES])
def test_pair_of_options_has_exact_totals(choice: Choice) -> None:
    case = make_case(choice)
    with world(8):
        mine, plain = run(case, FSDPMemTracker), run(case, None)
        whole = run(case, partial(FSDPMemTracker, allocator=True))
    assert [mark["Total"] for mark in mine.marks] == mine.allocated
    assert mine.peak["Total"] == mine.allocated_peak
    assert whole.peak["Total"] == whole.allocated_peak_of_all
    assert has_equal_parameters(mine, plain)
    grown = [size - mine.allocated[0] for size in mine.allocated]
    assert grown == [size - plain.allocated[0] for size in plain.allocated]
    assert mine.allocated_peak - mine.allocated[0] == plain.allocated_peak - plain.allocated[0]
    for category in ("Sharded Param", "Unsharded Param", "All Gather", "Reduce Scatter"):
        assert sum_of_units(mine.units, category) == mine.peak.get(category, 0)
        assert sum_of_units(whole.units, category) == whole.peak.get(category, 0)


def sum_of_units(units: list[dict[str, Any]], category: str) -> int:
    finer = {
        "Sharded Param": ["Sharded Param", "Post-Forward Shard"],
        "Reduce Scatter": ["Reduce Scatter", "All Reduce"],
    }.get(category, [category])
    peaks = [unit["at_peak"].get(torch.device("cpu"), {}) for unit in units]
    return sum(peak.get(name, 0) for peak in peaks for name in finer)


def test_choices_cover_each_pair_of_values() -> None:
    for i, j in COLUMNS:
        chosen = {(choice[i], choice[j]) for choice in CHOICES}
        assert chosen == set(itertools.product(NAMES[i], NAMES[j]))
