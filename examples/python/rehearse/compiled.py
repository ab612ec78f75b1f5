# SPDX-License-Identifier: BSD-3-Clause
"""torch.compile and CUDA graphs on one GPU, as for `python compiled.py`.

Without a GPU: tidegauge rehearse compiled.py
"""

from __future__ import annotations

import torch
from torch import nn


def main() -> None:
    model = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.LayerNorm(4096)).cuda()
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(10):
        loss = compiled(torch.randn(256, 1024, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
