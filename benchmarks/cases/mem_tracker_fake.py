# SPDX-License-Identifier: BSD-3-Clause
"""MemTracker under FakeTensorMode, with layers as large as in Llama 8B."""

from __future__ import annotations

from contextlib import nullcontext

import torch
from measure import Ratio, measure
from tidegauge import MemTracker
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker as UpstreamMemTracker

from cases.mem_tracker import OURS, UPSTREAM, Training, hf_models


def run() -> list[Ratio]:
    with FakeTensorMode():
        model = hf_models.llama_8b(8)
        tokens = torch.zeros(1, 2048, dtype=torch.long)
        training = Training(
            lambda: model(input_ids=tokens, labels=tokens).loss,
            torch.optim.AdamW(model.parameters()),
        )
        return measure(
            "MemTracker under FakeTensorMode, Hugging Face Llama, 8 layers of the 8B, 2,048 tokens",
            training.step,
            {
                OURS: (training.within(MemTracker, model, tokens), 1.15),
                UPSTREAM: (training.within(UpstreamMemTracker, model, tokens), None),
            },
            plain=nullcontext,
            steps=1,
            warm_up=1,
            rounds_of={UPSTREAM: 2},
        )
