# SPDX-License-Identifier: BSD-3-Clause
"""A plain training script that does not use tidegauge. Try `tidegauge run train.py`."""

import argparse

import torch
from torch import nn


class Transformer(nn.Module):
    def __init__(self, layers: int, width: int, words: int = 512) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True) for _ in range(layers)
        )
        self.head = nn.Linear(width, words)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--batch", type=int, default=16)
    args = parser.parse_args()

    torch.manual_seed(0)
    model = Transformer(args.layers, width=128)
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(4):
        tokens = torch.randint(0, 512, (args.batch, 65))
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step + 1}: loss {loss.item():.2f}")


if __name__ == "__main__":
    main()
