# SPDX-License-Identifier: BSD-3-Clause
"""A training script with sequences of many lengths, which leave holes in the reserved memory."""

import random

import torch
from torch import nn

torch.manual_seed(0)
random.seed(0)
model = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256))
optimizer = torch.optim.AdamW(model.parameters())
kept: list[torch.Tensor] = []
for _ in range(12):
    length = random.randint(200, 4000)
    output = model(torch.randn(length, 256))
    kept = [*kept, output.detach()[: length // 2].clone()][-4:]  # a memory of the last four
    output.square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
