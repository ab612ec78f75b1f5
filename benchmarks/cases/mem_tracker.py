# SPDX-License-Identifier: BSD-3-Clause
"""MemTracker on small models, where the cost per operator and module matters most."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
import transformers
from measure import Enter, Ratio, measure
from tidegauge import MemTracker
from torch import nn
from torch.distributed._tools.mem_tracker import MemTracker as UpstreamMemTracker

sys.path.append(str(Path(__file__).parents[2] / "tests" / "python" / "support"))
import hf_models  # the models of the tests, with other sizes

OURS, UPSTREAM = "tidegauge", "upstream"


class Training:
    """One step of a model; upstream requires a reset of its statistics before each."""

    def __init__(self, loss: Callable[[], Any], optimizer: torch.optim.Optimizer) -> None:
        self._loss = loss
        self._optimizer = optimizer
        self._reset: Callable[[], object] = bool

    def step(self) -> None:
        self._reset()
        self._optimizer.zero_grad()
        self._loss().backward()
        self._optimizer.step()

    def within(self, make_tracker: Callable[[], Any], *tracked: Any) -> Enter:
        @contextmanager
        def enter() -> Iterator[object]:
            tracker = make_tracker()
            tracker.track_external(*tracked, self._optimizer)
            if isinstance(tracker, UpstreamMemTracker):
                self._reset = tracker.reset_mod_stats
            with tracker:
                yield tracker
            self._reset = bool

        return enter


def _measure_training(
    case: str,
    model: nn.Module,
    inputs: Any,
    loss: Callable[[], Any],
    optimizer: torch.optim.Optimizer,
    *,
    bar: float,
    steps: int,
    upstream_rounds: int = 3,
) -> list[Ratio]:
    training = Training(loss, optimizer)
    return measure(
        f"MemTracker, {case}",
        training.step,
        {
            OURS: (training.within(MemTracker, model, inputs), bar),
            UPSTREAM: (training.within(UpstreamMemTracker, model, inputs), None),
        },
        plain=nullcontext,
        steps=steps,
        warm_up=2,
        rounds_of={UPSTREAM: upstream_rounds},
    )


def tiny_mlp() -> list[Ratio]:
    model = nn.Sequential(*(m for _ in range(20) for m in (nn.Linear(16, 16), nn.ReLU())))
    x = torch.randn(16, 16)
    return _measure_training(
        "MLP of 20 x (Linear(16, 16), ReLU), batch 16, SGD",
        model,
        x,
        lambda: model(x).sum(),
        torch.optim.SGD(model.parameters(), lr=0.01),
        bar=1.20,
        steps=50,
    )


def _wide_mlp() -> list[Ratio]:
    model = nn.Sequential(*(m for _ in range(4) for m in (nn.Linear(1024, 1024), nn.ReLU())))
    x = torch.randn(256, 1024)
    return _measure_training(
        "MLP of 4 x (Linear(1024, 1024), ReLU), batch 256, SGD",
        model,
        x,
        lambda: model(x).sum(),
        torch.optim.SGD(model.parameters(), lr=0.01),
        bar=1.05,
        steps=3,
    )


def _language_model(case: str, model: Any, *, bar: float) -> list[Ratio]:
    tokens = torch.randint(1000, (2, 32))
    return _measure_training(
        f"{case}, hidden 128, 2 x 32 tokens, AdamW",
        model,
        tokens,
        lambda: model(input_ids=tokens, labels=tokens).loss,
        torch.optim.AdamW(model.parameters()),
        bar=bar,
        steps=5,
        upstream_rounds=2,
    )


def llama() -> list[Ratio]:
    model = hf_models.llama(8, 128, vocab_size=1000, num_key_value_heads=4)
    return _language_model("Hugging Face Llama, 8 layers", model, bar=1.12)


def _allocator_channel() -> list[Ratio]:
    """The extra cost of the allocator channel: the plain run has a tracker without it."""
    model = hf_models.llama(8, 128, vocab_size=1000, num_key_value_heads=4)
    tokens = torch.randint(1000, (2, 32))
    training = Training(
        lambda: model(input_ids=tokens, labels=tokens).loss, torch.optim.AdamW(model.parameters())
    )
    return measure(
        "MemTracker with the allocator channel to one without, Hugging Face Llama, 8 layers",
        training.step,
        {OURS: (training.within(lambda: MemTracker(allocator=True), model, tokens), 1.10)},
        plain=training.within(MemTracker, model, tokens),
        steps=5,
        warm_up=2,
    )


def _gpt2() -> list[Ratio]:
    model = hf_models.gpt2(12, 128, vocab_size=1000)
    return _language_model("Hugging Face GPT-2, 12 layers", model, bar=1.15)


def _ops_with_known_modules() -> list[Ratio]:
    """The cost of an operator must not grow with the number of modules that have statistics."""
    x = torch.zeros(16)

    def step() -> None:
        y = x
        for _ in range(400):
            y = y + x

    def within(make_tracker: Callable[[], Any], modules: int) -> Enter:
        model = nn.Sequential(*(nn.Identity() for _ in range(modules)))

        @contextmanager
        def enter() -> Iterator[object]:
            with make_tracker() as tracker:
                model(x)
                yield tracker

        return enter

    def run(modules: int) -> list[Ratio]:
        return measure(
            f"MemTracker, 4,000 additions, {modules:,} known modules",
            step,
            {
                OURS: (within(MemTracker, modules), None),
                UPSTREAM: (within(UpstreamMemTracker, modules), None),
            },
            plain=nullcontext,
            steps=10,
            warm_up=1,
            rounds_of={UPSTREAM: 1 if modules > 100 else 3},
        )

    few, many = run(10), run(1000)
    growth = [
        Ratio(
            "MemTracker, 4,000 additions, cost with 1,000 known modules to that with 10",
            after.variant,
            after.ratio / before.ratio,
            before.spread + after.spread,
            after.plain_us,
            1.3 if after.variant == OURS else None,
        )
        for before, after in zip(few, many, strict=True)
    ]
    return few + many + growth


def run() -> list[Ratio]:
    torch.manual_seed(0)
    transformers.logging.set_verbosity_error()
    return [
        *tiny_mlp(),
        *llama(),
        *_allocator_channel(),
        *_gpt2(),
        *_wide_mlp(),
        *_ops_with_known_modules(),
    ]
