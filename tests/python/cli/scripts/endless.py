# SPDX-License-Identifier: BSD-3-Clause
"""Trains until it is stopped."""

import torch
from torch import nn

model = nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
print("training", flush=True)
while True:
    model(torch.randn(16, 64)).sum().backward()
    optimizer.step()
