# SPDX-License-Identifier: BSD-3-Clause
"""Hugging Face's Trainer with a small Llama, bf16, workers and checkpoints.

Without GPUs: tidegauge rehearse [--gpus 8] transformers_trainer.py
"""

from __future__ import annotations

import tempfile

import torch
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments


class Tokens(Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return 256

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = torch.arange(index, index + 128) % 1000
        return {"input_ids": tokens, "labels": tokens}


def main() -> None:
    config = LlamaConfig(
        vocab_size=1000,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            folder,
            max_steps=5,
            per_device_train_batch_size=4,
            bf16=True,
            logging_steps=1,
            save_steps=2,
            dataloader_num_workers=2,
            report_to=[],
        )
        Trainer(model=LlamaForCausalLM(config), args=args, train_dataset=Tokens()).train()


if __name__ == "__main__":
    main()
