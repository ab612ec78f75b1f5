# SPDX-License-Identifier: BSD-3-Clause
"""A training step in a CUDA graph, as for `python cuda_graph.py`.

Without a GPU: tidegauge rehearse cuda_graph.py
"""

from __future__ import annotations

import torch
from torch import nn


def main() -> None:
    model = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, capturable=True)
    inputs = torch.randn(256, 1024, device="cuda")

    def train() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        train()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = train()
    for step in range(10):
        inputs.copy_(torch.randn(256, 1024))
        graph.replay()
        print(f"step {step}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
