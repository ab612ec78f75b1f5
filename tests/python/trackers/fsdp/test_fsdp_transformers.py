# SPDX-License-Identifier: BSD-3-Clause
"""Transformers with one unit per layer, in mixed precision and with checkpoints: categories at
named moments of three steps, computed from the shapes of the parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import hf_models
import pytest
import torch
from counting import counting
from runs import Split, read_split
from sharded import flat_mesh, world
from tidegauge import FSDPMemTracker
from torch import nn
from torch.distributed._composable import checkpoint
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from tracked import now

pytestmark = pytest.mark.filterwarnings("ignore")

WORLD = 4
SINGLE, HALF = 4, 2
POLICY = MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False)


@pytest.fixture(autouse=True)
def _world() -> Iterator[None]:
    with world(WORLD):
        yield


@dataclass
class Training:
    model: nn.Module
    layers: list[nn.Module]
    loss: Callable[[], torch.Tensor]


def llama() -> Training:
    model = hf_models.llama(layers=3)
    tokens = torch.randint(0, hf_models.TOKENS, (hf_models.BATCH, hf_models.LENGTH))
    return Training(
        model,
        list(model.model.layers),  # type: ignore[union-attr, arg-type]
        lambda: model(input_ids=tokens, labels=tokens).loss,
    )


class Encoder(nn.Module):
    """The output has an odd width, so that the shards of the root are uneven."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(32, 7)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.embedding(tokens)))


def encoder() -> Training:
    model, tokens = Encoder(), torch.randint(0, 50, (2, 12))
    return Training(
        model, list(model.encoder.layers), lambda: model(tokens).float().square().mean()
    )


@dataclass(frozen=True)
class Sizes:
    """Bytes of a unit. Each rank has the same number of rows of a parameter, padded."""

    shard: int
    whole: int
    """in the dtype of the computation"""
    reduced: int
    """the input of the reduce-scatter"""
    grads: int
    """not padded, in the dtype of the computation"""

    @classmethod
    def of(cls, parameters: Sequence[nn.Parameter]) -> Sizes:
        shapes = [p.shape for p in parameters]
        rows = [-(-shape[0] // WORLD) * shape[1:].numel() for shape in shapes]
        return cls(
            SINGLE * sum(rows),
            HALF * WORLD * sum(rows),
            SINGLE * WORLD * sum(rows),
            HALF * sum(shape.numel() for shape in shapes),
        )


def shard(training: Training) -> tuple[list[Sizes], Sizes]:
    """The layers, and the remaining parameters, which belong to the root."""
    layers = [Sizes.of(list(layer.parameters())) for layer in training.layers]
    inner = {p for layer in training.layers for p in layer.parameters()}
    root = Sizes.of([p for p in training.model.parameters() if p not in inner])
    for layer in training.layers:
        checkpoint(layer)
        fully_shard(layer, mesh=flat_mesh(), mp_policy=POLICY)
    fully_shard(training.model, mesh=flat_mesh(), mp_policy=POLICY)
    return layers, root


@pytest.mark.parametrize("make", [llama, encoder])
def test_categories_at_named_moments(make: Callable[[], Training]) -> None:
    torch.manual_seed(0)
    training = make()
    sizes, root = shard(training)
    shards = root.shard + sum(each.shard for each in sizes)
    optimizer = torch.optim.AdamW(training.model.parameters(), foreach=False)
    local = [p.to_local() for p in training.model.parameters()]  # type: ignore[operator]
    states = sum(2 * p.nbytes + SINGLE for p in local)
    with counting() as allocator:
        tracker = FSDPMemTracker(training.model, optimizer)
        with tracker:
            base = allocator.read().storage_bytes - now(tracker)["Total"]
            for step in range(3):
                loss = training.loss()
                after_forward = now(tracker)
                assert after_forward["Unsharded Param"] == root.whole
                assert after_forward["Sharded Param"] == shards
                assert after_forward.get("OptState", 0) == (states if step else 0)
                loss.backward()
                others = ("Activation", "Buffer", "Total")
                assert {k: v for k, v in now(tracker).items() if k not in others} == {
                    "Sharded Param": shards,
                    "Sharded Grad": shards,
                    **({"OptState": states} if step else {}),
                }
                assert now(tracker)["Total"] == allocator.read().storage_bytes - base
                check_states(tracker, training.layers, sizes, root)
                optimizer.step()
                optimizer.zero_grad()
                del loss
                assert now(tracker)["OptState"] == states
                assert "Sharded Grad" not in now(tracker)
    assert tracker._native.anomalies() == tracker._native.failures() == (0, "")


def check_states(
    tracker: FSDPMemTracker, layers: list[nn.Module], sizes: list[Sizes], root: Sizes
) -> None:
    for i, (layer, own) in enumerate(zip(layers, sizes, strict=True)):
        snapshots: dict[Any, Any] = tracker.memory_tracking[layer].snapshots
        split: dict[str, Split] = {
            state.value: read_split(calls[0]) for state, calls in snapshots.items()
        }
        assert all(len(calls) == 1 for calls in snapshots.values())
        previous = sizes[i - 1].whole if i > 0 else root.whole
        following = [each.shard for each in sizes[i + 1 :]]
        expected = {
            # The buffer of an all-gather lives until the next one is complete.
            ("Before Pre-Forward", "All Gather"): previous,
            ("Before Pre-Forward", "Unsharded Param"): root.whole,
            ("After Pre-Forward", "All Gather"): own.whole,
            ("After Pre-Forward", "Unsharded Param"): root.whole + own.whole,
            ("Before Post-Forward", "Unsharded Param"): root.whole + own.whole,
            ("After Post-Forward", "Unsharded Param"): root.whole,
            ("After Post-Forward", "All Gather"): own.whole,
            # It was prefetched, and so is the previous layer now.
            ("Before Pre-Backward", "All Gather"): own.whole,
            ("After Pre-Backward", "Unsharded Param"): root.whole + own.whole,
            ("After Pre-Backward", "All Gather"): sizes[i - 1].whole if i > 0 else 0,
            ("Before Post-Backward", "Sharded Grad"): sum(following),
            ("After Post-Backward", "Sharded Grad"): sum(following) + own.shard,
            ("After Post-Backward", "Reduce Scatter"): own.reduced,
            ("After Post-Backward", "Unsharded Param"): root.whole,
        }
        found = {key: split[key[0]].get(key[1], 0) for key in expected}
        assert found == expected
        # All gradients of the layer; the reduction frees them.
        before, after = (
            split[f"{when} Post-Backward"].get("Unsharded Grad", 0) for when in ("Before", "After")
        )
        assert before - after == own.grads
        assert {"Pre-Forward AC", "Post-Forward AC"} <= set(split)
        assert split["Post-Forward AC"]["Activation"] > split["Pre-Forward AC"]["Activation"]
