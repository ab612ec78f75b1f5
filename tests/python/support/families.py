# SPDX-License-Identifier: BSD-3-Clause
"""Families of models, tiny and in full size, from configurations alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import nn

Inputs = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Family:
    model: str
    """name of its class in `transformers`"""
    config: str
    make_inputs: Callable[[Any, bool], Inputs]
    """makes the inputs from the configuration and whether it is the tiny one"""
    tiny: dict[str, Any]
    full: dict[str, Any]
    """differences from the configuration's defaults, which are those of a published model"""
    dtype: torch.dtype = torch.float32

    def build(self, *, is_tiny: bool) -> tuple[nn.Module, Inputs]:
        """The model and its keyword arguments; its output has a `loss`."""
        options = self.tiny if is_tiny else self.full
        config = getattr(transformers, self.config)(**options)
        usual = torch.get_default_dtype()
        torch.set_default_dtype(self.dtype)
        try:
            model = getattr(transformers, self.model)(config)
        finally:
            torch.set_default_dtype(usual)
        return model.train(), self.make_inputs(config, is_tiny)


def _tokens(config: Any, is_tiny: bool) -> Inputs:
    tokens = torch.randint(2, config.vocab_size, (2, 12 if is_tiny else 512))
    return {"input_ids": tokens, "labels": tokens.clone()}


def _images(config: Any, is_tiny: bool) -> Inputs:
    side = getattr(config, "image_size", 32 if is_tiny else 224)
    return {"pixel_values": torch.randn(2, 3, side, side), "labels": torch.tensor([0, 1])}


def _sounds(config: Any, is_tiny: bool) -> Inputs:
    length = 2 * config.max_source_positions
    labels = torch.randint(2, config.vocab_size, (2, 8))
    return {"input_features": torch.randn(2, config.num_mel_bins, length), "labels": labels}


_TINY = {"vocab_size": 96, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
_HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "use_cache": False}
_PADS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 1}

FAMILIES: dict[str, Family] = {
    "llama": Family(
        "LlamaForCausalLM", "LlamaConfig", _tokens, {**_TINY, **_HEADS}, {"use_cache": False}
    ),
    "qwen2": Family(
        "Qwen2ForCausalLM", "Qwen2Config", _tokens, {**_TINY, **_HEADS}, {"use_cache": False}
    ),
    "mistral": Family(
        "MistralForCausalLM", "MistralConfig", _tokens, {**_TINY, **_HEADS}, {"use_cache": False}
    ),
    "mixtral": Family(
        "MixtralForCausalLM",
        "MixtralConfig",
        _tokens,
        {**_TINY, **_HEADS, "num_local_experts": 4},
        {"use_cache": False},
        torch.bfloat16,  # torch's meta kernel of a grouped product supports no other
    ),
    "gpt2": Family(
        "GPT2LMHeadModel",
        "GPT2Config",
        _tokens,
        {"vocab_size": 96, "n_embd": 32, "n_layer": 2, "n_head": 4, "use_cache": False, **_PADS},
        {"use_cache": False},
    ),
    "bert": Family(
        "BertForMaskedLM", "BertConfig", _tokens, {**_TINY, "num_attention_heads": 4}, {}
    ),
    "t5": Family(
        "T5ForConditionalGeneration",
        "T5Config",
        _tokens,
        {
            "vocab_size": 96,
            "d_model": 32,
            "d_kv": 8,
            "d_ff": 64,
            "num_layers": 2,
            "num_heads": 4,
            "decoder_start_token_id": 0,
            "use_cache": False,
        },
        {"decoder_start_token_id": 0, "use_cache": False},
    ),
    "vit": Family(
        "ViTForImageClassification",
        "ViTConfig",
        _images,
        {
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 64,
            "image_size": 32,
            "patch_size": 8,
        },
        {},
    ),
    "convnext": Family(
        "ConvNextForImageClassification",
        "ConvNextConfig",
        _images,
        {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2, "image_size": 32},
        {},
    ),
    "resnet": Family(
        "ResNetForImageClassification",
        "ResNetConfig",
        _images,
        {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [2, 2], "layer_type": "basic"},
        {},
    ),
    "whisper": Family(
        "WhisperForConditionalGeneration",
        "WhisperConfig",
        _sounds,
        {
            "vocab_size": 96,
            "d_model": 32,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "num_mel_bins": 8,
            "encoder_ffn_dim": 64,
            "decoder_ffn_dim": 64,
            "max_source_positions": 16,
            "max_target_positions": 16,
            "decoder_start_token_id": 1,
            "use_cache": False,
            **_PADS,
        },
        {"use_cache": False},
    ),
}
