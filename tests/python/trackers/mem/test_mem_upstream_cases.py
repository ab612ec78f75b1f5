# SPDX-License-Identifier: BSD-3-Clause
"""The three cases of upstream's own MemTracker test, on the CPU and exact to the byte.

Upstream's test allows a difference of 10 % from the allocator's peak.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from runs import Record, Run, Scenario, run_scenario
from torch import nn
from torch.utils.checkpoint import checkpoint
from tracked import now, parameter_bytes, track


def both(scenario: Scenario) -> tuple[Record, Record]:
    return run_scenario("ours", scenario), run_scenario("untracked", scenario)


def two_iterations(run: Run, model: nn.Module, x: torch.Tensor) -> object:
    optimizer = torch.optim.Adam(model.parameters(), foreach=True)
    with run.tracking(model, optimizer, x):
        for _ in range(2):
            run.reset()
            model(x).sum().backward()
            run.mark("after backward")
            optimizer.step()
            optimizer.zero_grad()
            run.mark("after zero_grad")
    return model


def accelerator_test(run: Run) -> object:
    layers = [
        layer for _ in range(4) for layer in (nn.Linear(512, 512, dtype=torch.bfloat16), nn.ReLU())
    ]
    x = torch.randn(16, 512, dtype=torch.bfloat16)
    return two_iterations(run, nn.Sequential(*layers), x)


def test_peak_of_four_linears_in_bfloat16() -> None:
    ours, untracked = both(accelerator_test)
    assert untracked.allocator is not None
    assert ours.peak["Total"] == untracked.allocator.storage_peak_bytes == 10_522_656
    # a number of 8 bytes, and its cast to a bfloat16 of 2 bytes
    assert untracked.allocator.peak_bytes == 10_522_666


class Block(nn.Module):
    def __init__(self, width: int, checkpointed: bool) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width)
        )
        self.checkpointed = checkpointed

    def forward(self, x: torch.Tensor) -> Any:
        if self.checkpointed:
            return checkpoint(self.body, x, preserve_rng_state=True, use_reentrant=False)
        return self.body(x)


RNG_STATE = 5_056


def checkpoint_test(run: Run, width: int, tokens: int) -> object:
    blocks = nn.Sequential(*(Block(width, checkpointed=index > 0) for index in range(4)))
    return two_iterations(run, blocks.half(), torch.randn(tokens, width, dtype=torch.float16))


def peak_of_checkpoint_test(width: int, tokens: int, rng_state: int) -> int:
    """In the second backward, after the ReLU of the last block was differentiated."""
    float16 = 2
    row = tokens * width * float16  # the hidden layer of a block has two
    weights = 4 * (2 * 2 * width * width + 3 * width) * float16
    states = 2 * weights + 4 * 4 * 4  # 16 counters of steps in float32
    last_gradients = (2 * width * width + width) * float16
    kept = row + 2 * row + 3 * row  # the input, ReLU of the first block, inputs of the others
    recomputed = 3 * 2 * row  # ReLU of the last block, its gradient and that of its input
    loss_and_its_gradient = 2 * float16
    return (
        weights + states + last_gradients + kept + recomputed + 3 * rng_state
    ) + loss_and_its_gradient


def test_peak_of_four_blocks_with_checkpoints() -> None:
    ours, untracked = both(partial(checkpoint_test, width=128, tokens=1024))
    assert ours.error is None
    assert untracked.allocator is not None
    assert untracked.allocator.storage_peak_bytes == 4_808_836
    assert peak_of_checkpoint_test(128, 1024, RNG_STATE) == 4_808_836
    assert ours.peak["Total"] == 4_808_836
    assert {name: held["Total"] for name, held in ours.marks.items()} == untracked.allocated


def test_peak_of_four_blocks_at_the_size_of_upstreams_test() -> None:
    """Upstream's figure under a fake mode, which does not include random states."""
    assert peak_of_checkpoint_test(1024, 128 * 1024, rng_state=0) == 3_326_158_916


def test_bytes_are_attributed_as_in_upstreams_test() -> None:
    model = nn.Sequential(
        *(
            layer
            for _ in range(3)
            for layer in (nn.Linear(128, 256), nn.GELU(), nn.Linear(256, 128), nn.GELU())
        )
    )
    optimizer = torch.optim.Adam(model.parameters(), foreach=True)
    x = torch.randn(16, 128)
    weights = parameter_bytes(model)
    tracker = track(model, optimizer, x)
    with tracker:
        assert now(tracker)["Parameter"] == weights == 3 * (2 * 128 * 256 + 256 + 128) * 4
        loss = model(x).sum()
        loss.backward()
        held = now(tracker)
        assert (held["Parameter"], held["Gradient"]) == (weights, weights)
        optimizer.step()
        states = sum(value.nbytes for state in optimizer.state.values() for value in state.values())
        assert states == 2 * weights + 12 * 4
        held = now(tracker)
        assert (held["Parameter"], held["Gradient"], held["Optstate"]) == (weights, weights, states)
        optimizer.zero_grad()
        held = now(tracker)
        assert (held["Parameter"], held["Optstate"]) == (weights, states)
        assert "Gradient" not in held
