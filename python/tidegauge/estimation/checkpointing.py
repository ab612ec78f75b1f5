# SPDX-License-Identifier: BSD-3-Clause
"""Activation checkpointing of the blocks of a model."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from tidegauge._util.files import MAX_TEXT_BYTES, read_file
from tidegauge._util.formatting import make_printable, shorten
from tidegauge.estimation.block_kinds import list_kinds, parse_checkpointing
from tidegauge.estimation.imports import import_file, import_module_of_target
from tidegauge.planning.block_checkpointing import checkpoint_block, find_ops, list_kept

# From the position of a block and its forward to the forward to call instead.
WatchBlock = Callable[[int, Callable[..., Any]], Callable[..., Any]]


def checkpoint_blocks(
    blocks: Sequence[nn.Module], ac: str, watch: WatchBlock | None = None
) -> None:
    """`ac`: as in a plan, but not "none". Raises ValueError for an invalid file of ops, or for a
    function that cannot be found.

    `watch`: replaces the forward of the blocks.
    """
    kind, rest = parse_checkpointing(ac)
    if kind == "ops":
        kept = _read_ops(rest)
        for block in blocks:
            _apply_policy(block, lambda: _Policy(kept))
        return
    if kind == "policy":
        make_policy = _find_function(rest)
        for block in blocks:
            _apply_policy(block, make_policy)
        return
    for position, (block, each) in enumerate(zip(blocks, list_kinds(ac, len(blocks)), strict=True)):
        if each != "none":
            run = watch(position, block.forward) if watch else None
            _check_kept(block, each)
            checkpoint_block(block, list_kept(each), run)


def _check_kept(block: nn.Module, kind: str) -> None:
    """Raises ValueError for an op that torch does not have, or a module that the block lacks."""
    if not kind.startswith("keep="):
        return
    for each in list_kept(kind):
        op, _, module = each.partition("@")
        if not find_ops((op,)):
            raise ValueError(f"invalid ac '{kind}': torch has no op '{op}' (expected e.g. mm)")
        if module and module not in dict(block.named_modules()):
            raise ValueError(
                f"invalid ac '{kind}': a {type(block).__name__} has no module '{module}'"
            )


def _read_ops(file: str) -> dict[Any, int]:
    """For each op whose outputs are kept, 1 for all calls or 2 for every second one.

    The file has a line for each op: `mm`, `aten.mm` or `mylib::fused.default`, and perhaps
    `every N`. A line may end with a comment after #.
    """
    try:
        text = read_file(file, MAX_TEXT_BYTES).decode()
    except (OSError, ValueError) as error:
        raise ValueError(f"cannot read the ops of ac ops:{file}: {error}") from None
    ops: dict[Any, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        name, *more = line.partition("#")[0].split() or ("",)
        if not name:
            continue
        if more and (more[0] != "every" or not re.fullmatch(r"[1-9]\d{,8}", " ".join(more[1:]))):
            shown = shorten(make_printable(line.strip()), 100)
            raise ValueError(
                f"invalid line {number} of {file}: '{shown}' (expected the name of an op, or e.g. "
                "aten.mm every 2)"
            )
        for op in _find_ops(name, f"line {number} of {file}"):
            ops[op] = int(more[1]) if more else 1
    if not ops:
        raise ValueError(f"{file} names no op to keep (expected a name in each line, e.g. aten.mm)")
    return ops


def _find_ops(name: str, place: str) -> list[Any]:
    """All overloads of the op, or the one that the name ends with."""
    parts = name.replace("::", ".").split(".")
    if len(parts) == 1:
        parts = ["aten", *parts]
    found: Any = torch.ops
    for part in parts:
        found = getattr(found, part, None)
    if isinstance(found, torch._ops.OpOverload):
        return [found]
    if isinstance(found, torch._ops.OpOverloadPacket):
        overloads = found.overloads()  # type: ignore[no-untyped-call]
        return [getattr(found, overload) for overload in overloads]
    shown = shorten(make_printable(name), 100)
    raise ValueError(f"{place}: torch has no op '{shown}' (expected e.g. aten.mm)")


class _Policy:
    """Keeps some calls of the ops. The forward and the recomputation count them alike."""

    def __init__(self, kept: Mapping[Any, int]) -> None:
        self._kept = kept
        self._calls: Counter[tuple[bool, Any]] = Counter()

    def __call__(self, context: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        every = self._kept.get(op, 0)
        if every > 1:
            key = context.is_recompute, op
            self._calls[key] += 1
            is_kept = self._calls[key] % every == 1
        else:
            is_kept = every == 1
        return CheckpointPolicy.MUST_SAVE if is_kept else CheckpointPolicy.PREFER_RECOMPUTE


def _find_function(place: str) -> Callable[[], Any]:
    """`place`: "FILE.py:FUNCTION" or "MODULE:FUNCTION"."""
    where, _, name = place.rpartition(":")
    if where.endswith(".py"):
        if not Path(where).is_file():
            raise ValueError(f"cannot find {where} of ac policy:{place}")
        module = import_file(Path(where))
    else:
        module = import_module_of_target(where)
    found = getattr(module, name, None)
    if not callable(found):
        raise ValueError(f"{where} has no function {name} (named by ac policy:{place})")
    made: Callable[[], Any] = found
    return made


def _apply_policy(block: nn.Module, make_policy: Callable[[], Any]) -> None:
    """Checkpoints as `checkpoint_block` does, with a new policy for each call of the block."""
    run: Callable[..., Any] = functools.partial(checkpoint, block.forward, use_reentrant=False)

    def make_contexts() -> Any:  # for each call of the block
        return create_selective_checkpoint_contexts(make_policy())  # type: ignore[no-untyped-call]

    block.forward = functools.partial(run, context_fn=make_contexts)
