# SPDX-License-Identifier: BSD-3-Clause
"""Parameters, buffers and gradients whose memory is exchanged without an op are labelled in every
snapshot."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable

import pytest
import torch
from tidegauge import MemTracker
from tidegauge._torch import memory_patches
from torch import nn
from torch.optim.swa_utils import AveragedModel

CPU = torch.device("cpu")
LINEAR = (32 * 32 + 32) * 4


def batch_norm() -> nn.Module:
    return nn.Sequential(nn.Linear(32, 32), nn.BatchNorm1d(32))


BATCH_NORM = LINEAR + 2 * 32 * 4, 2 * 32 * 4 + 8  # parameters; buffers, with a counter


def now(tracker: MemTracker) -> dict[str, int]:
    snapshot = tracker.get_tracker_snapshot("current")[CPU]
    return {getattr(key, "value", key): size for key, size in snapshot.items() if size}


def test_model_that_changes_its_type_keeps_its_labels() -> None:
    model = batch_norm()
    with MemTracker() as tracker:
        tracker.track_external(model)
        model.half()
        assert now(tracker) == {
            "Parameter": BATCH_NORM[0] // 2,
            "Buffer": 2 * 32 * 2 + 8,
            "Total": BATCH_NORM[0] // 2 + 2 * 32 * 2 + 8,
        }


def test_gradient_set_by_hand_is_labelled() -> None:
    model = nn.Linear(32, 32)
    with MemTracker() as tracker:
        tracker.track_external(model)
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        assert now(tracker) == {"Parameter": LINEAR, "Gradient": LINEAR, "Total": 2 * LINEAR}
        assert tracker.get_tracker_snapshot("peak")[CPU]["Gradient"] == LINEAR
        model.zero_grad()
        assert now(tracker) == {"Parameter": LINEAR, "Total": LINEAR}


def through_a_file(model: nn.Module) -> nn.Module:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)  # type: ignore[no-any-return]


@pytest.mark.parametrize("duplicate", [copy.deepcopy, AveragedModel, through_a_file])
def test_copy_of_a_model_is_labelled_without_a_call(
    duplicate: Callable[[nn.Module], nn.Module],
) -> None:
    model = batch_norm()
    with MemTracker() as tracker:
        tracker.track_external(model)
        twin = duplicate(model)
        own_counter = 8 if duplicate is AveragedModel else 0
        parameters, buffers = 2 * BATCH_NORM[0], 2 * BATCH_NORM[1] + own_counter
        expected = {"Parameter": parameters, "Buffer": buffers, "Total": parameters + buffers}
        assert now(tracker) == expected
        del twin
        assert now(tracker)["Parameter"] == BATCH_NORM[0]


def test_setstate_of_modules_is_restored_after_the_last_exit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with MemTracker():
        pass
    # Compares the original, because dynamo may have put a patch on top of ours, which then stays.
    monkeypatch.setattr(nn.Module, "__setstate__", memory_patches._setstate)
    original = nn.Module.__setstate__
    with MemTracker():
        assert nn.Module.__setstate__ is not original
    assert nn.Module.__setstate__ is original
