# SPDX-License-Identifier: BSD-3-Clause
"""Higher-order ops, which torch dispatches in Python, also run under trackers."""

from __future__ import annotations

import pytest
import tidegauge
import torch
from tidegauge._torch import op_patches
from torch._prims import rng_prims


def draw() -> torch.Tensor:
    torch.manual_seed(7)
    _, drawn = rng_prims.run_and_save_rng_state(
        torch.ops.aten.rand.default, [5000], device=torch.device("cpu")
    )
    return drawn


def test_results_are_equal_and_their_tensors_are_counted() -> None:
    untracked = draw()
    tracker = tidegauge.MemTracker()
    with tracker:
        drawn = draw()
        (now,) = tracker.get_tracker_snapshot("current").values()
    assert torch.equal(drawn, untracked)
    assert now["Total"] >= 5000 * 4
    assert torch._ops.key_extractor is not op_patches._extract_keys


def test_higher_order_ops_run_in_a_simulation() -> None:
    with tidegauge.simulate():
        drawn = draw()
        assert drawn.shape == (5000,)
        with pytest.raises(RuntimeError, match="simulated"):
            drawn[0].item()
