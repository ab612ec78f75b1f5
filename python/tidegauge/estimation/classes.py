# SPDX-License-Identifier: BSD-3-Clause
"""`module:Class` with a config: estimates a model without a contract file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tidegauge.estimation.config_file import read_config
from tidegauge.estimation.contract import Contract, ContractError
from tidegauge.estimation.imports import import_module_of_target
from tidegauge.estimation.transformers_models import make_contract

_EXAMPLE = """\
    {"settings": {"batch": 8},
     "arguments": {"d_model": 512, "nhead": 8, "batch_first": true},
     "inputs": [{"shape": ["batch", 128, 512], "dtype": "float32"}]}"""


def load_class(module_name: str, name: str, config: str | None) -> Contract:
    """The class is a subclass of nn.Module. For Hugging Face models, `config` is their config."""
    model_class = _find_class(module_name, name)
    if config is None:
        raise ContractError(
            f"{module_name}:{name} requires --config FILE, for example\n{_EXAMPLE}\n"
            "or, for a transformers class, its config.json"
        )
    values = read_config(Path(config))
    if hasattr(model_class, "config_class"):
        return make_contract(config, values, model_class)
    return _make_contract(f"{module_name}:{name}", model_class, values, config)


def _find_class(module_name: str, name: str) -> type[nn.Module]:
    module = import_module_of_target(module_name)
    found = getattr(module, name, None)
    if not (isinstance(found, type) and issubclass(found, nn.Module)):
        raise ContractError(f"{module_name} has no torch.nn.Module named {name}")
    return found


def _make_contract(
    name: str, model_class: type[nn.Module], values: Mapping[str, Any], config: str
) -> Contract:
    unknown = [key for key in values if key not in ("settings", "arguments", "inputs")]
    if unknown or not values.get("inputs"):
        what = f"has an unknown key '{unknown[0]}'" if unknown else "has no inputs"
        raise ContractError(f"{config} {what}; expected for example\n{_EXAMPLE}")
    settings = dict(values.get("settings", {"batch": 1}))
    arguments = dict(values.get("arguments", {}))
    return Contract(
        name=name,
        # Arguments are settings too, so that --set and --sweep can change them.
        settings={**settings, **arguments},
        build_model=lambda given: model_class(**{key: getattr(given, key) for key in arguments}),
        make_inputs=lambda given: [_make_input(each, vars(given)) for each in values["inputs"]],
        compute_loss=_compute_loss,
    )


def _make_input(description: Mapping[str, Any], settings: Mapping[str, Any]) -> torch.Tensor:
    shape = [
        settings[size] if isinstance(size, str) else int(size) for size in description["shape"]
    ]
    dtype = getattr(torch, description.get("dtype", "float32"))
    if dtype.is_floating_point:
        return torch.randn(shape, dtype=dtype)
    return torch.randint(0, int(description.get("below", 2)), shape, dtype=dtype)


def _compute_loss(model: nn.Module, inputs: list[torch.Tensor]) -> torch.Tensor:
    return reduce_output(model(*inputs))


def reduce_output(output: Any) -> torch.Tensor:
    """The model's own loss, or else the mean of its output: any scalar loss needs that memory."""
    loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if loss is None:
        loss = output[0] if isinstance(output, tuple | list) else output
    if not isinstance(loss, torch.Tensor):
        raise TypeError(
            f"the model returned a {type(output).__name__} without a loss; write a Python file "
            "with compute_loss (docs/estimate.md)"
        )
    return loss.float().mean()
