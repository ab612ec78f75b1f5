# SPDX-License-Identifier: BSD-3-Clause
"""Our total equals the allocator's, to the byte, on `transformers` models.

The allocator also sees two kinds of memory that are not tensors of the program. The counting
allocator separates them: the workspace of a kernel, which is freed before its operator ends (its
storage peak is taken at the ends of operators), and the 8 bytes of a Python number while it is an
argument.
"""

from __future__ import annotations

import warnings
from typing import Any

import hf_models
import pytest
import torch
from counting import counting
from hf_training import totals, training
from runs import run_scenario
from torch import nn
from tracked import FLOAT, now, peak, track

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("checkpoints", [False, True], ids=["plain", "checkpoints"])
@pytest.mark.parametrize("name", hf_models.MODELS)
def test_total_equals_the_allocator(name: str, checkpoints: bool) -> None:
    scenario = training(name, checkpoints=checkpoints)
    ours, untracked = run_scenario("ours", scenario), run_scenario("untracked", scenario)
    assert (ours.error, untracked.error) == (None, None)
    assert ours.allocator == untracked.allocator  # tracking does not change it
    assert untracked.allocator is not None
    assert totals(ours) == untracked.allocated
    assert ours.peak["Total"] == untracked.allocator.storage_peak_bytes


@pytest.mark.parametrize("name", hf_models.MODELS)
def test_parameters_gradients_and_states_equal_those_of_the_model(name: str) -> None:
    model, inputs = hf_models.build(name)
    optimizer = torch.optim.AdamW(model.parameters())
    tracker = track(model, optimizer, inputs)
    with tracker:
        model(**inputs).loss.backward()
        optimizer.step()
        held = now(tracker)
        optimizer.zero_grad()
        freed = now(tracker)
    parameters = _bytes(model.parameters())
    states = _bytes(value for state in optimizer.state.values() for value in state.values())
    with_grad = _bytes(p for p in model.parameters() if p in optimizer.state)
    assert held["Parameter"] == freed["Parameter"] == parameters
    assert held.get("Buffer", 0) == _bytes(model.buffers())
    assert held["Gradient"] == with_grad
    assert "Gradient" not in freed
    assert held["Optstate"] == freed["Optstate"] == states


def _bytes(tensors: Any) -> int:
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    return sum(storages.values())


def test_workspace_of_a_product_is_the_copy_of_an_expanded_gradient() -> None:
    """The gradient of a sum is one expanded number; `mm` copies it while its kernel runs."""
    model, x = nn.Linear(16, 8, bias=False), torch.ones(32, 16)
    with counting() as allocator:
        base = allocator.read().live_bytes
        tracker = track(model, x)
        with tracker:
            loss = model(x).sum()
            allocator.restart()
            loss.backward()
        counts = allocator.read()
    copy = 32 * 8 * FLOAT
    weight_gradient, loss_and_its_gradient = 16 * 8 * FLOAT, 2 * FLOAT
    assert allocator.op_of_peak() == "aten::mm"
    assert counts.storage_peak_bytes - base == weight_gradient + loss_and_its_gradient
    assert counts.peak_bytes - counts.storage_peak_bytes == copy
    del loss


def test_workspace_of_a_python_number_is_not_counted() -> None:
    """`x * 2` makes 8 bytes for the number, and its kernel casts it to a float32 of 4 bytes."""
    x = torch.ones(256)
    with counting() as allocator:
        base = allocator.read().live_bytes
        tracker = track(x)
        with tracker:
            y = x * 2
        counts = allocator.read()
    assert peak(tracker)["Total"] == 2 * 256 * FLOAT
    assert counts.storage_peak_bytes - base == y.nbytes
    assert counts.peak_bytes - base == y.nbytes + 8 + 4


def test_random_state_that_a_checkpoint_keeps_is_counted() -> None:
    """5,056 bytes each, Activation like all memory kept by forward; upstream does not see them."""
    from torch.utils.checkpoint import checkpoint

    model, x = nn.Linear(16, 16), torch.ones(4, 16)
    tracker = track(model, x)
    kept = {}
    for preserve in (False, True):
        with tracker, warnings.catch_warnings():
            before = now(tracker)
            y = checkpoint(model, x, use_reentrant=False, preserve_rng_state=preserve)
            kept[preserve] = now(tracker)["Activation"] - before.get("Activation", 0)
            del y
    assert kept[True] - kept[False] == torch.get_rng_state().nbytes == 5_056
