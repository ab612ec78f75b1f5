# SPDX-License-Identifier: BSD-3-Clause
"""Allocates more memory than the machine has."""

import torch
from torch import nn

model = nn.Linear(64, 64)
kept = [model(torch.randn(1024, 64)) for _ in range(4)]
kept.append(torch.empty(1 << 48))
