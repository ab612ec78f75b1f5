# SPDX-License-Identifier: BSD-3-Clause
"""Estimates of models that exist already."""

from __future__ import annotations

import pytest
import tidegauge
import torch
from tidegauge.estimation import Contract
from torch import nn


@pytest.mark.parametrize("simulated_device", ["cuda", "cpu"])
def test_model_that_exists_needs_what_its_contract_needs(simulated_device: str) -> None:
    def build() -> nn.Module:
        return nn.Sequential(nn.Linear(64, 256), nn.LayerNorm(256), nn.Linear(256, 64))

    contract = Contract(
        name="Sequential",
        build_model=lambda settings: build(),
        make_inputs=lambda settings: torch.zeros(32, 64),
        compute_loss=lambda model, x: model(x).mean(),
    )
    model, x = build(), torch.randn(32, 64)
    found = tidegauge.estimate(model, inputs=x, simulated_device=simulated_device)
    expected = tidegauge.estimate(contract, simulated_device=simulated_device)
    assert found.peak.categories == expected.peak.categories
    assert found.needed_bytes == expected.needed_bytes
    assert all(each.device.type == "cpu" for each in model.parameters())
