# SPDX-License-Identifier: BSD-3-Clause
"""The extra cost of recording a tracked step with many small operators."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from measure import Ratio, measure
from tidegauge import MemTracker

from cases.mem_tracker import Training, hf_models


def run() -> list[Ratio]:
    torch.manual_seed(0)
    transformers.logging.set_verbosity_error()
    model: Any = hf_models.llama(8, 128, vocab_size=1000, num_key_value_heads=4)
    tokens = torch.randint(1000, (2, 32))
    training = Training(
        lambda: model(input_ids=tokens, labels=tokens).loss, torch.optim.AdamW(model.parameters())
    )

    @contextmanager
    def recorded() -> Iterator[object]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "run.tide"
            with training.within(lambda: MemTracker(record=path), model, tokens)() as tracker:
                yield tracker

    return measure(
        "MemTracker, recording to a tracked step, Hugging Face Llama, 8 layers, hidden 128",
        training.step,
        {"tidegauge": (recorded, 1.10)},
        plain=training.within(MemTracker, model, tokens),
        steps=5,
        warm_up=2,
    )
