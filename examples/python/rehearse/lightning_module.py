# SPDX-License-Identifier: BSD-3-Clause
"""A LightningModule with validation and bf16; with several ranks, DDP.

Without GPUs: tidegauge rehearse [--gpus 4] lightning_module.py
"""

from __future__ import annotations

import os
import tempfile
from typing import Any

import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 10))

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.log("loss", loss)
        if self.global_rank == 0:
            print(f"step {index}: loss {loss.item():.3f}")
        return loss

    def validation_step(self, batch: Any, index: int) -> None:
        self.log("valid", nn.functional.cross_entropy(self.net(batch[0]), batch[1]), sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main() -> None:
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    data = DataLoader(TensorDataset(torch.randn(512, 64), torch.arange(512) % 10), 8)
    with tempfile.TemporaryDirectory() as folder:
        trainer = pl.Trainer(
            max_steps=5,
            accelerator="gpu",
            devices=ranks,
            strategy="ddp" if ranks > 1 else "auto",
            precision="bf16-mixed",
            log_every_n_steps=1,
            default_root_dir=folder,
            enable_progress_bar=False,
        )
        trainer.fit(Classifier(), data, data)


if __name__ == "__main__":
    main()
