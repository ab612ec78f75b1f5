# SPDX-License-Identifier: BSD-3-Clause
"""A plain PyTorch loop on synthetic data with DataLoader workers."""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8))
    optimizer = torch.optim.AdamW(model.parameters())
    data = TensorDataset(torch.randn(96, 64), torch.randint(0, 8, (96,)))
    for inputs, labels in DataLoader(data, batch_size=32, num_workers=2):
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(__name__, sys.argv[1:], "trained")


if __name__ == "__main__":
    main()
    sys.exit(5)
