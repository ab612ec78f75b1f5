# SPDX-License-Identifier: BSD-3-Clause
"""Activation checkpointing of the blocks of a model: which ops each block keeps, by name."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

_ATTENTION = (
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
)
_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "convolution", "_scaled_mm")

# The ops of torch.ops.aten whose outputs a kind of checkpointing keeps. Kinds that are not listed
# keep everything ("none") or nothing ("full").
KEPT_OPS: dict[str, tuple[str, ...]] = {
    "attention": _ATTENTION,
    "selective": (*_PRODUCTS, *_ATTENTION),
}


def list_kept(kind: str) -> tuple[str, ...]:
    """What a kind of checkpointing keeps: names in torch.ops.aten, or `mm@mlp.up` for the calls in
    one submodule. `keep=mm@mlp.up/bmm` names them itself.
    """
    if kind.startswith("keep="):
        return tuple(kind.removeprefix("keep=").split("/"))
    return KEPT_OPS.get(kind, ())


@functools.cache
def find_ops(names: tuple[str, ...]) -> frozenset[Any]:
    """The ops with these names that this torch has."""
    ops = (getattr(torch.ops.aten, name, None) for name in names)
    return frozenset(op.default for op in ops if op is not None and hasattr(op, "default"))


@functools.cache
def group_by_module(kept: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """The names of the ops by submodule; "" for those that are kept everywhere in the block."""
    found: dict[str, tuple[str, ...]] = {}
    for each in kept:
        op, _, module = each.partition("@")
        found[module] = (*found.get(module, ()), op)
    return found


_running = threading.local()


def _names() -> list[str]:
    """The submodules with ops of their own that run in this thread, outermost first."""
    names: list[str] = _running.__dict__.setdefault("names", [])
    return names


def _run_inside(name: str, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    names = _names()
    names.append(name)
    try:
        return forward(*args, **kwargs)
    finally:  # a recompute ends with an exception when it has all that it needs
        names.pop()


def _choose(
    kept: tuple[str, ...], context: Any, op: Any, *args: Any, **kwargs: Any
) -> CheckpointPolicy:
    groups, names = group_by_module(kept), _names()
    is_kept = op in find_ops(groups.get("", ())) or (
        bool(names) and op in find_ops(groups.get(names[-1], ()))
    )
    return CheckpointPolicy.MUST_SAVE if is_kept else CheckpointPolicy.PREFER_RECOMPUTE


def checkpoint_block(
    block: nn.Module, kept: tuple[str, ...], run: Callable[..., Any] | None = None
) -> None:
    """From now on, the block keeps the outputs of these ops for its backward, and no others.

    Checkpoints inside the block's hooks, so FSDP2 gathers it outside, as with a wrapper, and its
    parameters keep their names. `run`: called instead of the block's forward.
    """
    forward: Callable[..., Any] = functools.partial(
        checkpoint, run or block.forward, use_reentrant=False
    )
    if kept:
        policy = functools.partial(_choose, kept)
        forward = functools.partial(
            forward, context_fn=functools.partial(create_selective_checkpoint_contexts, policy)
        )
    for name in filter(None, group_by_module(kept)):
        inner = block.get_submodule(name)
        inner.forward = functools.partial(_run_inside, name, inner.forward)
    block.forward = forward
