# SPDX-License-Identifier: BSD-3-Clause
"""A training script with a leak: it keeps the graph of a loss of every step."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256))
optimizer = torch.optim.AdamW(model.parameters())
held_out = torch.randn(64, 256)

losses = []
for _ in range(8):
    batch = torch.randn(64, 256)
    loss = nn.functional.mse_loss(model(batch), batch)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    # The leak: this loss has a graph, which keeps all that its backward would need.
    losses.append(nn.functional.mse_loss(model(held_out), held_out))
print(f"last loss {losses[-1].item():.2f}")
