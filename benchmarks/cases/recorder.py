# SPDX-License-Identifier: BSD-3-Clause
"""The extra cost of recording a tracked step with many small operators, and of recording lines."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from measure import Enter, Ratio, measure
from tidegauge import MemTracker, Recorder

from cases.mem_tracker import Training, hf_models

LLAMA = "Hugging Face Llama, 8 layers, hidden 128"


def run() -> list[Ratio]:
    torch.manual_seed(0)
    transformers.logging.set_verbosity_error()
    model: Any = hf_models.llama(8, 128, vocab_size=1000, num_key_value_heads=4)
    tokens = torch.randint(1000, (2, 32))
    training = Training(
        lambda: model(input_ids=tokens, labels=tokens).loss, torch.optim.AdamW(model.parameters())
    )

    def recorded(stacks: str) -> Enter:
        @contextmanager
        def enter() -> Iterator[object]:
            with tempfile.TemporaryDirectory() as folder:
                recorder = Recorder(Path(folder) / "run.tide")
                tracker = training.within(
                    lambda: MemTracker(record=recorder, stacks=stacks), model, tokens
                )
                with tracker() as inside:
                    yield inside
                recorder.close()

        return enter

    recording = measure(
        f"MemTracker, recording to a tracked step, {LLAMA}",
        training.step,
        {"tidegauge": (recorded("none"), 1.10)},
        plain=training.within(MemTracker, model, tokens),
        steps=5,
        warm_up=2,
    )
    # `run` records lines by default if this is at most 1.05.
    lines = measure(
        f"MemTracker, recording lines to a recorded step, {LLAMA}",
        training.step,
        {
            "stacks of modules": (recorded("module"), 1.05),
            "lines": (recorded("python"), 1.05),
        },
        plain=recorded("none"),
        steps=5,
        warm_up=2,
    )
    return [*recording, *lines]
