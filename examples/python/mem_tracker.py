# SPDX-License-Identifier: BSD-3-Clause
"""Shows the memory of a small Transformer in training, at the peak and in each module.

Run it with `.venv/bin/python examples/python/mem_tracker.py`.
"""

from __future__ import annotations

import torch
from tidegauge import MemTracker
from torch import nn


class LanguageModel(nn.Module):
    def __init__(self, tokens: int = 1000, width: int = 128, depth: int = 2) -> None:
        super().__init__()
        self.embed = nn.Embedding(tokens, width)
        layer = nn.TransformerEncoderLayer(width, nhead=4, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth)
        self.head = nn.Linear(width, tokens)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.embed(ids)))


def main() -> None:
    torch.manual_seed(0)
    model = LanguageModel()
    optimizer = torch.optim.AdamW(model.parameters())
    ids = torch.randint(1000, (8, 64))

    tracker = MemTracker()
    tracker.track_external(model, optimizer, ids)
    with tracker:
        for _ in range(2):  # the first step creates the optimizer states
            logits = model(ids)
            nn.functional.cross_entropy(logits.flatten(0, 1), ids.flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()

    print("At the peak")
    tracker.display_snapshot("peak", units="MiB", tabulate=True)
    print("\nThe model in the second step")
    tracker.display_modulewise_snapshots(depth=1, units="MiB", tabulate=True)


if __name__ == "__main__":
    main()
