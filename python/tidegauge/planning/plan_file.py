# SPDX-License-Identifier: BSD-3-Clause
"""plan.json: which ops each block keeps, and how to apply it to a model."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from tidegauge.errors import FormatError
from tidegauge.planning.block_checkpointing import KEPT_OPS, checkpoint_block, find_ops

_FORMAT = 1


@dataclass(frozen=True)
class AppliedPlan:
    """`blocks`: for each checkpointed module the ops whose outputs it keeps, by their names in
    torch.ops.aten. `facts`: what the plan was made for."""

    blocks: Mapping[str, tuple[str, ...]]
    facts: Mapping[str, Any]

    def apply(self, model: nn.Module) -> nn.Module:
        """Checkpoints the blocks. Call it before `fully_shard` and before the first step.

        Raises ValueError if the model has no module of this name, and changes nothing then.
        """
        modules = dict(model.named_modules())
        for name in self.blocks:
            if name not in modules:
                raise ValueError(
                    f"the plan names a module '{name}', which this {type(model).__name__} does "
                    "not have; make a plan for this model"
                )
        for kept in self.blocks.values():
            if missing := [op for op in kept if not find_ops((op,))]:
                raise ValueError(
                    f"the plan keeps an op '{missing[0]}', which this torch does not have; make a "
                    "plan with this torch"
                )
        for name, kept in self.blocks.items():
            checkpoint_block(modules[name], kept)
        return model

    def to_code(self) -> str:
        """Plain PyTorch code that does the same."""
        groups: dict[tuple[str, ...], list[str]] = {}
        for name, kept in self.blocks.items():
            groups.setdefault(kept, []).append(name)
        lines = ["import functools", "", "import torch", "from torch.utils import checkpoint as cp"]
        lines += ["", "", "def checkpoint_blocks(model):"]
        if not groups:
            lines.append("    return model  # nothing to checkpoint")
        for kept, names in groups.items():
            lines.append("    for name in (")
            lines += [f'        "{name}",' for name in names]
            lines += ["    ):", "        block = model.get_submodule(name)"]
            lines.append(
                "        run = functools.partial(cp.checkpoint, block.forward, use_reentrant=False)"
            )
            if kept:
                lines.append("        kept = [")
                lines += [f"            torch.ops.aten.{op}.default," for op in kept]
                lines += [
                    "        ]",
                    "        contexts = functools.partial(",
                    "            cp.create_selective_checkpoint_contexts, kept",
                    "        )",
                    "        run = functools.partial(run, context_fn=contexts)",
                ]
            lines.append("        block.forward = run")
        if groups:
            lines.append("    return model")
        return "\n".join(lines)

    def to_json(self) -> str:
        blocks = {name: list(kept) for name, kept in self.blocks.items()}
        whole = {"format": _FORMAT, "facts": dict(self.facts), "blocks": blocks}
        return json.dumps(whole, indent=2)


def make_applied(
    names: tuple[str, ...], kinds: tuple[str, ...], facts: Mapping[str, Any]
) -> AppliedPlan:
    """From the kind of checkpointing of each block; see KEPT_OPS. Ops of other torches are left
    out."""
    blocks = {
        name: tuple(op for op in KEPT_OPS.get(kind, ()) if find_ops((op,)))
        for name, kind in zip(names, kinds, strict=True)
        if kind != "none"
    }
    return AppliedPlan(blocks, facts)


def load(path: str | os.PathLike[str]) -> AppliedPlan:
    """Reads a plan.json of `tidegauge plan --write`. Raises FormatError if it is none."""
    try:
        values = json.loads(Path(path).read_text())
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise FormatError(f"{path} is no plan: {error}; write one with tidegauge plan") from None
    if not isinstance(values, dict) or values.get("format") != _FORMAT:
        found = values.get("format") if isinstance(values, dict) else type(values).__name__
        raise FormatError(
            f"{path} is a plan of format {found} (expected {_FORMAT}); write it again with "
            "tidegauge plan"
        )
    blocks = values.get("blocks")
    if not isinstance(blocks, dict) or not all(map(_is_op_list, blocks.values())):
        raise FormatError(
            f"the blocks of {path} are no dictionary of module names and lists of ops; write it "
            "again with tidegauge plan"
        )
    facts = values.get("facts")
    kept = {name: tuple(ops) for name, ops in blocks.items()}
    return AppliedPlan(kept, facts if isinstance(facts, dict) else {})


def _is_op_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)
