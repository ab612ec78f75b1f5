# SPDX-License-Identifier: BSD-3-Clause
"""Hugging Face language models with tiny configurations; nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hf_models
import pytest
import tidegauge
import torch
from graph_walk import nodes_misplaced
from observe import UpstreamModTracker, observe, ours, upstream
from torch import nn

TOKENS = torch.tensor([[1, 2, 3, 4]])


def llama() -> nn.Module:
    return hf_models.llama(use_cache=True)


def gpt2() -> nn.Module:
    return hf_models.gpt2(use_cache=True)


def loss_of(model: nn.Module) -> torch.Tensor:
    return model(input_ids=TOKENS, labels=TOKENS).loss


def step(build: Callable[[], nn.Module], checkpointing: dict[str, Any] | None = None) -> nn.Module:
    model = build()
    if checkpointing is not None:
        model.gradient_checkpointing_enable(checkpointing)
        model.train()
    loss_of(model).backward()
    return model


MODELS = pytest.mark.parametrize("build", [llama, gpt2])


@MODELS
def test_forward_agrees_with_upstream(build: Callable[[], nn.Module]) -> None:
    theirs, mine = upstream(lambda: step(build)), ours(lambda: step(build))
    assert len(mine.forward) > 100
    assert mine.forward == theirs.forward
    assert [line for line in mine.hooks if "_fw" in line] == [
        line for line in theirs.hooks if "_fw" in line
    ]


@pytest.mark.parametrize(("build", "wrong_upstream", "nodes"), [(llama, 93, 153), (gpt2, 1, 126)])
def test_every_node_belongs_to_the_module_that_made_it(
    build: Callable[[], nn.Module], wrong_upstream: int, nodes: int
) -> None:
    assert nodes_misplaced(UpstreamModTracker(), build(), loss_of) == (wrong_upstream, nodes)
    assert nodes_misplaced(tidegauge.ModTracker(), build(), loss_of) == (0, nodes)


@MODELS
def test_every_module_begins_and_ends_its_backward_once_per_call(
    build: Callable[[], nn.Module],
) -> None:
    """Includes modules called by keyword, modules whose inputs need no gradient, and the root."""
    hooks = ours(lambda: step(build)).hooks
    begun = sorted(line.split()[1] for line in hooks if line.startswith("pre_bw"))
    ended = sorted(line.split()[1] for line in hooks if line.startswith("post_bw"))
    assert begun == ended
    called = {line.split()[1] for line in hooks if line.startswith("pre_fw")}
    without_gradient = {name for name in called if "rotary_emb" in name}
    assert set(begun) == called - without_gradient


def test_attention_ends_within_its_layer() -> None:
    """A Llama layer calls its attention by keyword: upstream ends it after all layers."""
    ends = [f"layers.{i}{part}" for i in (1, 0) for part in (".self_attn", "")]

    def order(hooks: list[str]) -> list[str]:
        prefix = "post_bw LlamaForCausalLM.model."
        return [line.removeprefix(prefix) for line in hooks if line.removeprefix(prefix) in ends]

    assert order(upstream(lambda: step(llama)).hooks) == [
        *["layers.1", "layers.0"],
        *["layers.1.self_attn", "layers.0.self_attn"],
    ]
    assert order(ours(lambda: step(llama)).hooks) == [
        *["layers.1.self_attn", "layers.1"],
        *["layers.0.self_attn", "layers.0"],
    ]


@MODELS
@pytest.mark.parametrize("use_reentrant", [False, True])
def test_gradient_checkpointing_recomputes_within_the_layers(
    build: Callable[[], nn.Module], use_reentrant: bool
) -> None:
    record = ours(lambda: step(build, {"use_reentrant": use_reentrant}))
    attention = ".self_attn" if build is llama else ".attn"
    recomputed = [line for line in record.hooks if line.startswith("re-pre_fw")]
    assert len([line for line in recomputed if line.endswith(attention)]) == 2
    assert record.at_end == "-"


@MODELS
def test_generation_keeps_no_state(build: Callable[[], nn.Module]) -> None:
    model = build().eval()

    def generate() -> None:
        model.generate(TOKENS, max_new_tokens=3, do_sample=False, pad_token_id=0)

    record = observe(tidegauge.ModTracker(), generate)
    assert [line for line in record.hooks if "_bw" in line] == []
    root = type(model).__name__
    assert record.hooks.count(f"pre_fw {root}") == record.hooks.count(f"post_fw {root}") == 3
