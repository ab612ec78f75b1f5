# SPDX-License-Identifier: BSD-3-Clause
"""Training steps of `transformers` models, as scenarios."""

from __future__ import annotations

import hf_models
import torch
from runs import Record, Run, Scenario


def training(name: str, *, checkpoints: bool, steps: int = 2) -> Scenario:
    def scenario(run: Run) -> object:
        model, inputs = hf_models.build(name)
        if checkpoints:
            model = hf_models.with_checkpoints(model)
        optimizer = torch.optim.AdamW(model.parameters())
        with run.tracking(model, optimizer, inputs):
            for _ in range(steps):
                run.reset()
                run.step(lambda: model(**inputs).loss, optimizer=optimizer)
        return model

    return scenario


def totals(record: Record) -> dict[str, int]:
    return {name: split.get("Total", 0) for name, split in record.marks.items()}
