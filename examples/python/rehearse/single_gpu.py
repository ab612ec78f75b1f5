# SPDX-License-Identifier: BSD-3-Clause
"""A training script for one GPU, as for `python single_gpu.py`: autocast, clipping, a data loader.

Without a GPU: tidegauge rehearse single_gpu.py
"""

from __future__ import annotations

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--layers", type=int, default=8)
    args = parser.parse_args()

    layers: list[nn.Module] = []
    for _ in range(args.layers):
        layers += [nn.Linear(args.width, args.width), nn.GELU()]
    model = nn.Sequential(*layers, nn.Linear(args.width, 10)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler()
    data = TensorDataset(
        torch.randn(10 * args.batch, args.width), torch.arange(10 * args.batch) % 10
    )
    for step, (inputs, labels) in enumerate(DataLoader(data, args.batch, pin_memory=True)):
        with torch.autocast("cuda", torch.float16):
            outputs = model(inputs.cuda(non_blocking=True))
            loss = nn.functional.cross_entropy(outputs, labels.cuda(non_blocking=True))
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        print(f"step {step}: loss {loss.item():.3f}, gradient norm {norm.item():.3f}")


if __name__ == "__main__":
    main()
