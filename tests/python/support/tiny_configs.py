# SPDX-License-Identifier: BSD-3-Clause
"""Small versions of the configs of `transformers`, found by the names of their members."""

from __future__ import annotations

from typing import Any

import transformers
from transformers import CONFIG_MAPPING

TOKENS = 96
_SIZES: list[tuple[int, tuple[str, ...]]] = [
    (
        TOKENS,
        (
            *("vocab_size", "type_vocab_size", "decoder_vocab_size", "n_words"),
            *("vocab_size_per_layer_input", "shape_vocab_size", "pronunciation_vocab_size"),
        ),
    ),
    (256, ("encoder_hash_byte_group_vocab",)),
    (
        64,
        (
            *("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "context_length"),
            *("max_source_positions", "max_target_positions", "model_max_length"),
            *("intermediate_size", "ffn_dim", "decoder_ffn_dim", "encoder_ffn_dim", "d_ff"),
            *("ffn_hidden_size", "n_inner", "dff", "dim_ff", "feed_forward_size", "d_inner"),
            *("intermediate_size_mlp", "shared_intermediate_size", "dense_intermediate_size"),
            *("moe_intermediate_size", "shared_expert_intermediate_size", "mamba_d_ssm"),
            *("moe_shared_expert_intermediate_size", "expert_ffn_hidden_size"),
            *("intermediate_multiple_size", "original_max_position_embeddings"),
        ),
    ),
    (
        32,
        (
            *("hidden_size", "d_model", "n_embd", "dim_model_base", "embedding_size", "emb_dim"),
            *("embedding_dim", "lru_width", "input_embedding_size", "output_embedding_size"),
            *("word_embed_proj_dim", "image_size", "backbone_hidden_size", "prompt_mid_dim"),
            *("kv_lora_rank", "q_lora_rank", "o_lora_rank", "router_hidden_size"),
            *("classifier_proj_size", "index_head_dim", "ple_embed_dim", "sliding_window_size"),
            *("attention_hidden_size",),
        ),
    ),
    (16, ("sliding_window", "chunk_size", "mamba_chunk_size", "attention_window_size")),
    (
        8,
        (
            *("head_dim", "d_kv", "d_head", "dim_head", "attention_head_size", "v_head_dim"),
            *("qk_rope_head_dim", "qk_nope_head_dim", "kv_channels", "linear_head_dim"),
            *("swa_head_dim", "linear_key_head_dim", "linear_value_head_dim", "rotary_dim"),
            *("mamba_d_state", "state_size", "ssm_state_size", "hidden_size_per_layer_input"),
            *("laurel_rank", "adapter_rank", "gated_norm_rank", "patch_size", "hc_lowrank"),
            *("d_rel",),
        ),
    ),
    (
        4,
        (
            *("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads"),
            *("encoder_attention_heads", "decoder_attention_heads", "linear_num_heads"),
            *("num_encoder_attention_heads", "num_decoder_attention_heads", "index_n_heads"),
            *("swa_num_attention_heads", "linear_num_value_heads", "time_step_rank"),
            *("mamba_dt_rank", "index_topk", "num_experts", "num_local_experts", "n_experts"),
            *("n_routed_experts", "moe_num_experts", "mamba_n_heads", "mamba_num_heads"),
        ),
    ),
    (16, ("mamba_d_head", "mamba_head_dim", "mamba_headdim")),
    (
        2,
        (
            *("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers"),
            *("decoder_layers", "num_encoder_layers", "num_decoder_layers", "num_blocks"),
            *("num_key_value_heads", "num_kv_heads", "num_query_groups", "cross_attn_k"),
            *("num_global_key_value_heads", "swa_num_key_value_heads", "linear_num_key_heads"),
            *("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k"),
            *("num_layers_per_stack",),
        ),
    ),
    (0, ("num_kv_shared_layers",)),
    (
        1,
        (
            *("n_group", "topk_group", "num_expert_group", "mamba_n_groups", "n_groups"),
            *("n_shared_experts", "num_shared_experts", "mamba_ngroups", "num_mem_blocks"),
            *("first_k_dense_replace", "num_dense_layers"),
            *("decoder_start_token_id", "pretraining_tp"),
        ),
    ),
]
_SMALL = {name: size for size, names in _SIZES for name in names}
_NEVER_NONE = ("head_dim", "n_routed_experts", "num_experts_per_tok")
#: Members that other sizes need.
_PARTICULAR: dict[str, dict[str, Any]] = {
    "cohere_compass_text": {"layer_types": ["sliding_attention", "full_attention"]},
    "dbrx": {"attn_config": {"kv_n_heads": 2, "rope_theta": 10000.0, "clip_qkv": 8}},
    "dots1": {"n_shared_experts": 1},
    "efficientnet": {"width_coefficient": 0.25, "depth_coefficient": 0.25},
    "gemma4_assistant": {"hidden_size_per_layer_input": 0},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "m2m_100": {"encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0},  # drops layers at random
    "nllb-moe": {"encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0},
    "mamba2": {"num_heads": 4, "head_dim": 16},
    "nemotron": {"num_key_value_heads": 2},
    "reformer": {
        "is_decoder": True,
        "axial_pos_shape": (4, 4),
        "axial_pos_embds_dim": (16, 16),
        "attn_layers": ["local", "local"],
    },
    "xmod": {"default_language": "en_XX"},
    "zamba": {"num_hidden_layers": 3, "layers_block_type": ["mamba", "hybrid", "mamba"]},
    "zamba2": {"num_hidden_layers": 3, "layers_block_type": ["mamba", "hybrid", "mamba"]},
    "zaya": {"num_experts_per_tok": 1},
}


def make_config(model_type: str, **options: Any) -> Any:
    """The config of a model of this type with two layers of width 32."""
    return _make(CONFIG_MAPPING[model_type], options)


def _make(config_class: Any, options: dict[str, Any]) -> Any:
    usual = _defaults(config_class)
    chosen: dict[str, Any] = {}
    for name, value in usual.items():
        if name in _SMALL and isinstance(value, int | list | tuple) and not isinstance(value, bool):
            chosen[name] = _SMALL[name]
        elif name.endswith("token_id") and isinstance(value, int):
            chosen[name] = min(value, 2)
        elif name in _NEVER_NONE and value is None:
            chosen[name] = _SMALL[name]
    if usual.get("kv_lora_rank"):  # latent attention has a key for each head
        chosen["num_key_value_heads"] = chosen["num_attention_heads"]
    if isinstance(kinds := usual.get("layer_types"), list | tuple):
        kinds = [*dict.fromkeys(kinds)]
        chosen["layer_types"] = kinds * 2 if len(kinds) == 1 else kinds
        chosen["num_hidden_layers"] = len(chosen["layer_types"])
    if "use_cache" in usual:
        chosen["use_cache"] = False
    parts = getattr(config_class, "sub_configs", {})
    particular = _PARTICULAR.get(config_class.model_type, {})
    for name, part in parts.items():
        kind = type(usual.get(name)) if part is transformers.AutoConfig else part
        if name not in particular and issubclass(kind, transformers.PreTrainedConfig):
            chosen[name] = _make(kind, {})
    return config_class(**{**chosen, **particular, **options})


def _defaults(config_class: Any) -> dict[str, Any]:
    try:
        return dict(vars(config_class()))
    except Exception:
        return {
            name: getattr(config_class, name)
            for name in dir(config_class)
            if not name.startswith("_") and isinstance(getattr(config_class, name), int)
        }
