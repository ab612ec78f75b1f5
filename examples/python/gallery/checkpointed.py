# SPDX-License-Identifier: BSD-3-Clause
"""A training script whose checkpointing does almost nothing: it covers a part that saves little.

`--right` covers the blocks instead, `--plain` nothing.
"""

import argparse

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, width: int, how: str) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.how = how

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.how == "right":
            return checkpoint(self.inner, x, use_reentrant=False)
        return self.inner(x)

    def inner(self, x: torch.Tensor) -> torch.Tensor:
        if self.how == "wrong":
            normed = checkpoint(self.norm, x, use_reentrant=False)
        else:
            normed = self.norm(x)
        return x + self.down(nn.functional.gelu(self.up(normed)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--right", dest="how", action="store_const", const="right", default="wrong")
    parser.add_argument("--plain", dest="how", action="store_const", const="plain")
    how = parser.parse_args().how

    torch.manual_seed(0)
    model = nn.Sequential(*(Block(256, how) for _ in range(6)))
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        model(torch.randn(512, 256)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
