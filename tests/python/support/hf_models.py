# SPDX-License-Identifier: BSD-3-Clause
"""Small `transformers` models from configurations alone: nothing is downloaded.

The tests of both trackers and the benchmarks use them, each with its own configuration options.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import nn
from torch.utils.checkpoint import checkpoint

Inputs = dict[str, torch.Tensor]
TOKENS, BATCH, LENGTH = 96, 2, 12


def llama(layers: int = 2, hidden: int = 32, **options: Any) -> nn.Module:
    sizes = {
        "vocab_size": TOKENS,
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "use_cache": False,
    }
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes | options))


def llama_8b(layers: int = 32) -> nn.Module:
    """The dimensions of Llama 8B, for runs without memory."""
    return llama(
        layers,
        4096,
        vocab_size=128256,
        intermediate_size=14336,
        num_attention_heads=32,
        num_key_value_heads=8,
    )


def gpt2(layers: int = 2, hidden: int = 32, **options: Any) -> nn.Module:
    sizes = {
        "vocab_size": TOKENS,
        "n_positions": 64,
        "n_embd": hidden,
        "n_layer": layers,
        "n_head": 4,
        "use_cache": False,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "loss_type": "ForCausalLM",
    }
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes | options))


def bert() -> nn.Module:
    config = transformers.BertConfig(
        vocab_size=TOKENS,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
    )
    return transformers.BertForMaskedLM(config)


def t5() -> nn.Module:
    config = transformers.T5Config(
        vocab_size=TOKENS,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
        decoder_start_token_id=0,
        use_cache=False,
    )
    return transformers.T5ForConditionalGeneration(config)


def mixtral() -> nn.Module:
    config = transformers.MixtralConfig(
        vocab_size=TOKENS,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=4,
        use_cache=False,
    )
    return transformers.MixtralForCausalLM(config)


def vit() -> nn.Module:
    config = transformers.ViTConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        image_size=32,
        patch_size=8,
    )
    return transformers.ViTForImageClassification(config)


def resnet() -> nn.Module:
    config = transformers.ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32], depths=[2, 2], layer_type="basic"
    )
    return transformers.ResNetForImageClassification(config)


def _token_inputs() -> Inputs:
    tokens = torch.randint(TOKENS, (BATCH, LENGTH))
    return {"input_ids": tokens, "labels": tokens.clone()}


def _image_inputs() -> Inputs:
    return {"pixel_values": torch.randn(BATCH, 3, 32, 32), "labels": torch.tensor([0, 1])}


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Inputs]]] = {
    "llama": (llama, _token_inputs),
    "gpt2": (gpt2, _token_inputs),
    "bert": (bert, _token_inputs),
    "t5": (t5, _token_inputs),
    "mixtral": (mixtral, _token_inputs),
    "vit": (vit, _image_inputs),
    "resnet": (resnet, _image_inputs),
}


def build(name: str) -> tuple[nn.Module, Inputs]:
    """One of MODELS and its keyword arguments; its output has a `loss`."""
    make_model, make_inputs = MODELS[name]
    return make_model(), make_inputs()


def with_checkpoints(model: nn.Module) -> nn.Module:
    """Enables checkpointing as a user would. ResNet has no such option: wraps its stages."""
    if getattr(model, "supports_gradient_checkpointing", False):
        model.gradient_checkpointing_enable({"use_reentrant": False})  # type: ignore[operator]
        return model.train()
    for stage in model.resnet.encoder.stages:  # type: ignore[union-attr]
        forward: Any = stage.forward
        stage.forward = lambda x, forward=forward: checkpoint(forward, x, use_reentrant=False)
    return model
