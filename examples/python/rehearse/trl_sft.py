# SPDX-License-Identifier: BSD-3-Clause
"""Supervised fine-tuning with TRL's SFTTrainer.

Without GPUs: tidegauge rehearse [--gpus 8] trl_sft.py
"""

from __future__ import annotations

import tempfile

from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer


def make_tokenizer() -> PreTrainedTokenizerFast:
    words = {"<pad>": 0, "</s>": 1, "<unk>": 2, **{f"w{i}": i + 3 for i in range(997)}}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    )


def main() -> None:
    texts = [" ".join(f"w{i * j % 997}" for j in range(60)) for i in range(256)]
    config = LlamaConfig(
        vocab_size=1000,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=2,
        num_attention_heads=4,
    )
    with tempfile.TemporaryDirectory() as folder:
        args = SFTConfig(
            folder,
            max_steps=5,
            per_device_train_batch_size=4,
            max_length=64,
            bf16=True,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
        )
        SFTTrainer(
            model=LlamaForCausalLM(config),
            args=args,
            train_dataset=Dataset.from_dict({"text": texts}),
            processing_class=make_tokenizer(),
        ).train()


if __name__ == "__main__":
    main()
