# SPDX-License-Identifier: BSD-3-Clause
"""A loop with Hugging Face Accelerate: fp16, accumulation, clipping, metrics of all ranks.

Without GPUs: tidegauge rehearse [--gpus 8] accelerate_loop.py
"""

from __future__ import annotations

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    accelerator = Accelerator(mixed_precision="fp16", gradient_accumulation_steps=2)
    model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = DataLoader(TensorDataset(torch.randn(512, 64), torch.arange(512) % 10), 8)
    model, optimizer, data = accelerator.prepare(model, optimizer, data)
    for step, (inputs, labels) in enumerate(data):
        with accelerator.accumulate(model):
            loss = nn.functional.cross_entropy(model(inputs), labels)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        mean = accelerator.gather(loss.detach()[None]).mean()
        accelerator.print(f"step {step}: loss {mean.item():.3f}")


if __name__ == "__main__":
    main()
