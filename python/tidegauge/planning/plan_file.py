# SPDX-License-Identifier: BSD-3-Clause
"""plan.json: which ops each block keeps, and how to apply it to a model."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from tidegauge._util.files import MAX_TEXT_BYTES, read_file
from tidegauge._util.formatting import make_printable, shorten
from tidegauge._util.notebook import render_rows
from tidegauge.errors import FormatError
from tidegauge.planning.block_checkpointing import (
    checkpoint_block,
    find_ops,
    group_by_module,
    list_kept,
)

_FORMAT = 1
_ADVICE = "write one with tidegauge plan"


@dataclass(frozen=True)
class AppliedPlan:
    """`blocks`: for each checkpointed module the ops whose outputs it keeps, by their names in
    torch.ops.aten; `mm@mlp.up`: only those of one submodule. `facts`: what the plan was made for.
    """

    blocks: Mapping[str, tuple[str, ...]]
    facts: Mapping[str, Any]

    def __str__(self) -> str:
        """`checkpoints 12 blocks: 8 keep nothing, 4 keep mm, bmm`"""
        if not self.blocks:
            return "checkpoints no block"
        counts = Counter(self.blocks.values())
        parts = [
            f"{count} {'keeps' if count == 1 else 'keep'} {', '.join(kept) or 'nothing'}"
            for kept, count in counts.most_common()
        ]
        blocks = "block" if len(self.blocks) == 1 else "blocks"
        return f"checkpoints {len(self.blocks)} {blocks}: {'; '.join(parts)}"

    def _repr_html_(self) -> str:
        """For notebooks: the ops that each block keeps."""
        rows = [(name, ", ".join(kept) or "nothing") for name, kept in self.blocks.items()]
        return render_rows(str(self), ("block", "keeps the outputs of"), rows)

    def apply(self, model: nn.Module) -> nn.Module:
        """Checkpoints the blocks. Call it before `fully_shard` and before the first step.

        Models of transformers then no longer use a cache of keys and values: recomputing would
        append to it.

        Raises ValueError if the model has no module of this name, and changes nothing then.
        """
        modules = dict(model.named_modules())
        for name in self.blocks:
            if name not in modules:
                raise ValueError(
                    f"the plan names a module '{_show(name)}', which this {type(model).__name__} "
                    "does not have; make a plan for this model"
                )
        for name, kept in self.blocks.items():
            for module, ops in group_by_module(kept).items():
                if missing := [op for op in ops if not find_ops((op,))]:
                    raise ValueError(
                        f"the plan keeps an op '{_show(missing[0])}', which this torch does not "
                        "have; make a plan with this torch"
                    )
                if module and f"{name}.{module}" not in modules:
                    raise ValueError(
                        f"the plan names a module '{_show(f'{name}.{module}')}', which this "
                        f"{type(model).__name__} does not have; make a plan for this model"
                    )
        for name, kept in self.blocks.items():
            checkpoint_block(modules[name], kept)
        for each in model.modules() if self.blocks else ():
            config = getattr(each, "config", None)
            if getattr(config, "use_cache", False) is True:
                config.use_cache = False  # type: ignore[union-attr]
        return model

    def to_code(self) -> str:
        """Plain PyTorch code that does the same."""
        groups: dict[tuple[str, ...], list[str]] = {}
        for name, kept in self.blocks.items():
            groups.setdefault(kept, []).append(name)
        has_modules = any(any(group_by_module(kept)) for kept in groups)
        lines = ["import functools", "", "import torch", "from torch.utils import checkpoint as cp"]
        lines += _POLICY_OF_MODULES if has_modules else []
        lines += ["", "", "def checkpoint_blocks(model):"]
        if not groups:
            lines.append("    return model  # nothing to checkpoint")
        for kept, names in groups.items():
            lines.append("    for name in (")
            lines += [f"        {_to_literal(name)}," for name in names]
            lines += ["    ):", "        block = model.get_submodule(name)"]
            lines.append(
                "        run = functools.partial(cp.checkpoint, block.forward, use_reentrant=False)"
            )
            lines += _render_kept(kept)
            lines.append("        block.forward = run")
        if groups:
            lines += [
                "    for module in model.modules():",
                "        if getattr(getattr(module, 'config', None), 'use_cache', False) is True:",
                "            module.config.use_cache = False  # recomputing would append to it",
                "    return model",
            ]
        return "\n".join(lines)

    def to_json(self) -> str:
        blocks = {name: list(kept) for name, kept in self.blocks.items()}
        whole = {"format": _FORMAT, "facts": dict(self.facts), "blocks": blocks}
        return json.dumps(whole, indent=2)


# In plain code: the ops of a block by submodule, as `checkpoint_block` does it.
_POLICY_OF_MODULES = """

running = []  # the submodules with ops of their own, outermost first


def run_inside(name, forward, *args, **kwargs):
    running.append(name)
    try:
        return forward(*args, **kwargs)
    finally:
        running.pop()


def choose(kept, context, op, *args, **kwargs):
    names = ("", *running[-1:])
    is_kept = any(op in kept.get(name, ()) for name in names)
    return cp.CheckpointPolicy.MUST_SAVE if is_kept else cp.CheckpointPolicy.PREFER_RECOMPUTE
""".splitlines()


def _render_kept(kept: tuple[str, ...]) -> list[str]:
    """The lines that make `run` keep these ops."""
    if not kept:
        return []
    groups = group_by_module(kept)
    if [*groups] == [""]:
        lines = ["        kept = ["]
        lines += [f"            torch.ops.aten.{op}.default," for op in kept]
        lines.append("        ]")
        policy = "kept"
    else:
        lines = ["        kept = {"]
        for module, ops in groups.items():
            shown = ", ".join(f"torch.ops.aten.{op}.default" for op in ops)
            lines.append(f"            {_to_literal(module)}: ({shown},),")
        lines.append("        }")
        lines += [
            "        for inner in filter(None, kept):",
            "            module = block.get_submodule(inner)",
            "            module.forward = functools.partial(run_inside, inner, module.forward)",
        ]
        policy = "functools.partial(choose, kept)"
    return [
        *lines,
        "        contexts = functools.partial(",
        f"            cp.create_selective_checkpoint_contexts, {policy}",
        "        )",
        "        run = functools.partial(run, context_fn=contexts)",
    ]


def make_applied(
    names: tuple[str, ...], kinds: tuple[str, ...], facts: Mapping[str, Any]
) -> AppliedPlan:
    """From the kind of checkpointing of each block; see `list_kept`. Ops of other torches are left
    out."""
    blocks = {
        name: tuple(each for each in list_kept(kind) if find_ops((each.partition("@")[0],)))
        for name, kind in zip(names, kinds, strict=True)
        if kind != "none"
    }
    return AppliedPlan(blocks, facts)


def load(path: str | os.PathLike[str]) -> AppliedPlan:
    """Reads a plan.json of `tidegauge plan --write`. Raises FormatError for any other file.

    The file is data: a plan from a stranger can name modules and ops, and nothing else.
    """
    where = os.fspath(path)
    try:
        values = json.loads(read_file(path, MAX_TEXT_BYTES).decode())
    except FormatError:
        raise
    except RecursionError:
        problem = "it is nested too deeply"
        raise FormatError(f"{where} is not a plan ({problem}); {_ADVICE}") from None
    except ValueError as error:
        raise FormatError(f"{where} is not a plan ({error}); {_ADVICE}") from None
    found = values.get("format") if isinstance(values, dict) else values
    if not isinstance(values, dict) or type(found) is not int or found != _FORMAT:
        shown = _show(str(found)) if isinstance(found, str | int) else type(found).__name__
        raise FormatError(f"{where} is a plan of format {shown} (expected {_FORMAT}); {_ADVICE}")
    blocks = values.get("blocks")
    if not isinstance(blocks, dict) or not all(map(_is_op_list, blocks.values())):
        raise FormatError(
            f"the blocks of {where} are invalid (expected lists of ops by module name); {_ADVICE}"
        )
    facts = values.get("facts")
    kept = {name: tuple(ops) for name, ops in blocks.items()}
    return AppliedPlan(kept, facts if isinstance(facts, dict) else {})


def _is_op_list(value: Any) -> bool:
    """Names that are not identifiers could be anything in the code of `to_code`."""
    return isinstance(value, list) and all(
        isinstance(each, str) and each.isascii() and each.partition("@")[0].isidentifier()
        for each in value
    )


def _to_literal(name: str) -> str:
    """In Python. The name of a module may contain any characters."""
    literal = ascii(name)
    return f'"{literal[1:-1]}"' if literal[0] == "'" and '"' not in literal else literal


def _show(name: str) -> str:
    """A name in a file may be anything; a message has one line."""
    return shorten(make_printable(name), 100)
