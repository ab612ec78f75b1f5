# SPDX-License-Identifier: BSD-3-Clause
"""Hugging Face models, built from their config.json without network access or weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from tidegauge.estimation.config_file import read_config
from tidegauge.estimation.contract import Contract, ContractError, describe_error
from tidegauge.estimation.transformers_parallel import (
    for_parts_of_sequences,
    parallelize,
    parallelize_experts,
)

_DEFAULT_SEQ = 2048


def load_config(path: Path, name: str | None = None) -> Contract:
    """A language model: its input is tokens, its loss is that of predicting them.

    `name`: shown instead of the path.
    """
    values = read_config(path)
    if "model_type" not in values:
        raise ContractError(
            f"{path} has no model_type, so it is not a Hugging Face config; for other models write "
            "a Python file (docs/estimate.md)"
        )
    return make_contract(name or str(path), values, None)


def make_contract(
    name: str, values: Mapping[str, Any], model_class: type[nn.Module] | None
) -> Contract:
    """`model_class`: by default the first of the config's architectures that exists.

    Of a multimodal config, the causal language model of its text part.
    """
    try:
        import transformers
    except ImportError:
        raise ContractError(
            f"{name} is a Hugging Face config, but transformers is not installed "
            "(pip install transformers)"
        ) from None
    rest = {key: value for key, value in values.items() if key != "model_type"}
    try:
        if "model_type" in values:
            config = transformers.AutoConfig.for_model(values["model_type"], **rest)
        else:
            config = model_class.config_class(**rest)  # type: ignore[union-attr]
    except (ValueError, TypeError) as error:
        raise ContractError(f"{name}: {error}") from None
    except Exception as error:  # its validators raise errors of many types
        raise ContractError(f"{name}: {describe_error(error)}") from None
    try:
        text = config.get_text_config()
    except ValueError:  # it has several text parts
        text = config
    if text is not config and isinstance(getattr(text, "vocab_size", None), int):
        config, model_class = text, None
        values = vars(text)
        name = f"{name}, its text part"
    if not isinstance(getattr(config, "vocab_size", None), int):
        raise ContractError(
            f"{name} does not describe a language model (no vocab_size); write a Python file with "
            "its inputs and loss (docs/estimate.md)"
        )
    if model_class is None:
        model_class = _find_architecture(values.get("architectures"))
    # The config's numbers are settings too, so that --set and --sweep can change them.
    numbers = {key: value for key, value in vars(config).items() if _is_number(key, value)}
    longest = getattr(config, "max_position_embeddings", None) or _DEFAULT_SEQ
    if not isinstance(longest, int):
        raise ContractError(f"{name}: max_position_embeddings is {longest!r} (expected an integer)")

    def build_model(settings: Any) -> nn.Module:
        for key in numbers:
            setattr(config, key, getattr(settings, key))
        config.use_cache = False
        if model_class is None:
            model = transformers.AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
        elif hasattr(model_class, "_from_config"):  # what from_config and from_pretrained call
            model = model_class._from_config(config)
        else:
            model = model_class(config)
        return cast(nn.Module, model).train()

    def make_inputs(settings: Any) -> torch.Tensor:
        return torch.randint(0, settings.vocab_size, (settings.batch, settings.seq))

    contract = Contract(
        name=name,
        settings={"batch": 1, "seq": min(longest, _DEFAULT_SEQ), **numbers},
        build_model=build_model,
        make_inputs=make_inputs,
        compute_loss=lambda model, tokens: model(input_ids=tokens, labels=tokens).loss,
        parallelize=parallelize,
        parallelize_experts=parallelize_experts,
    )
    return replace(contract, with_whole_inputs=for_parts_of_sequences(contract))


def _find_architecture(names: object) -> type[nn.Module] | None:
    """The first of the names that is a model of transformers: not its functions and modules."""
    import transformers

    for name in names if isinstance(names, list) else ():
        found = getattr(transformers, name, None) if isinstance(name, str) else None
        if isinstance(found, type) and issubclass(found, nn.Module):
            return found
    return None


def _is_number(key: str, value: object) -> bool:
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and not key.startswith("_")
    )
