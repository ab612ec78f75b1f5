# SPDX-License-Identifier: BSD-3-Clause
"""Hugging Face models over several ranks, by the functions of transformers and Accelerate."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any, cast

import torch
from torch import nn

from tidegauge.estimation.contract import Contract

_IGNORED = -100  # a label that has no loss


def parallelize(model: nn.Module, mesh: Any) -> None:
    """Does what `from_pretrained` does for a DistributedConfig with a tp_size."""
    import transformers

    name = type(model).__name__
    plan = getattr(model, "tp_plan", None)
    if not plan:
        raise ValueError(f"{name} has no tensor parallel plan; remove tp")
    try:
        from transformers.distributed.tensor_parallel import apply_tensor_parallelism
    except ImportError:
        raise ValueError(
            f"tp of Hugging Face models requires transformers.distributed.tensor_parallel, which "
            f"transformers {transformers.__version__} does not have; install a newer version"
        ) from None
    if any(getattr(each, "_is_expert_parallel", False) for each in model.modules()):
        plan = _without(plan, cast(Any, model).ep_plan)
    apply_tensor_parallelism(model, mesh, plan)  # type: ignore[no-untyped-call]
    # It replaces every parameter by a new one, so tied ones are no longer the same.
    cast(Any, model).tie_weights(recompute_mapping=False)


def _without(plan: dict[str, str], experts: dict[str, str]) -> dict[str, str]:
    """The rules for modules that the plan of the experts does not name."""
    names = "|".join(map(re.escape, experts))
    is_expert = re.compile(rf"(?:{names})(?:\..+)?").fullmatch
    return {name: style for name, style in plan.items() if not is_expert(name)}


def parallelize_experts(model: nn.Module, mesh: Any, tp_mesh: Any) -> Sequence[nn.Module]:
    """Does what `from_pretrained` does for a DistributedConfig with an ep_size."""
    import transformers

    name = type(model).__name__
    plan = getattr(model, "ep_plan", None)
    if not plan:
        raise ValueError(f"{name} has no expert parallel plan; remove ep")
    try:
        from transformers.distributed.expert_parallel import apply_expert_parallelism
    except ImportError:
        raise ValueError(
            f"ep of Hugging Face models requires transformers.distributed.expert_parallel, which "
            f"transformers {transformers.__version__} does not have; install a newer version"
        ) from None
    if "ep_dispatch_experts" not in plan.values():
        raise ValueError(
            f"the expert parallel plan of {name} exchanges no tokens (it sums the results of all "
            "ranks); remove ep"
        )
    apply_expert_parallelism(model, mesh, tp_mesh, plan)
    return [each for each in model.modules() if getattr(each, "_is_expert_parallel", False)]


def for_parts_of_sequences(contract: Contract) -> Contract:
    """The contract for context parallelism. As with Trainer, each token has its position and the
    label that follows it, and attention is causal without a mask.
    """

    def build_model(settings: Any) -> nn.Module:
        attach: Any = import_module("accelerate.big_modeling")._attach_context_parallel_hooks

        model = contract.build_model(settings)
        attach(model)
        return model

    def make_inputs(settings: Any) -> dict[str, torch.Tensor]:
        tokens = contract.make_inputs(settings)
        labels = nn.functional.pad(tokens, (0, 1), value=_IGNORED)[:, 1:].contiguous()
        positions = torch.arange(tokens.shape[1]).expand_as(tokens).contiguous()
        return {
            "input_ids": tokens,
            "labels": tokens.clone(),
            "shift_labels": labels,
            "position_ids": positions,
        }

    return replace(
        contract,
        build_model=build_model,
        make_inputs=make_inputs,
        compute_loss=lambda model, inputs: model(**inputs).loss,
        split_sequence=lambda model, inputs: [(each, 1) for each in inputs.values()],
    )
