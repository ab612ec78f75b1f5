# SPDX-License-Identifier: BSD-3-Clause
"""Makes a contract from a target: a Python file, a Hugging Face config or id, or `module:Class`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from tidegauge.estimation.classes import load_class
from tidegauge.estimation.contract import Contract, ContractError
from tidegauge.estimation.imports import import_file
from tidegauge.estimation.target_kind import find_cached_config, find_target_kind
from tidegauge.estimation.transformers_models import load_config

_REQUIRED = ("build_model", "make_inputs", "compute_loss")
_OPTIONAL = (
    *("blocks", "shard", "tensor_parallel_plan", "parallelize", "parallelize_experts"),
    *("split_sequence", "make_optimizer"),
)
_SMALLEST = """\
    SETTINGS = {"batch": 1}
    def build_model(settings): return torch.nn.Linear(8, 8)
    def make_inputs(settings): return torch.randn(settings.batch, 8)
    def compute_loss(model, inputs): return model(inputs).sum()"""


def load_contract(target: str | os.PathLike[str], config: str | None = None) -> Contract:
    """`target`: a Python file, a Hugging Face config (.json) or the id of one in the local cache,
    or `module:Class` with `config`.

    Raises ContractError for an invalid target, ModelError if its code fails.
    """
    kind = find_target_kind(target, config)
    if kind == "class":
        module, _, name = os.fspath(target).partition(":")
        return load_class(module, name, config)
    path = Path(target)
    if kind == "hub":
        cached = find_cached_config(os.fspath(target))
        assert cached is not None
        return load_config(cached, os.fspath(target))
    if kind == "config":
        return load_config(path / "config.json" if path.is_dir() else path)
    return _load_file(path)


def _load_file(path: Path) -> Contract:
    module = import_file(path)
    missing = [name for name in _REQUIRED if not callable(getattr(module, name, None))]
    if missing:
        raise ContractError(
            f"{path} does not define {', '.join(missing)}. A minimal file:\n"
            f"    import torch\n{_SMALLEST}"
        )
    settings = getattr(module, "SETTINGS", {})
    if not isinstance(settings, Mapping):
        raise ContractError(
            f"SETTINGS of {path} is a {type(settings).__name__} (expected a dictionary of names "
            "and default values)"
        )
    functions = {name: getattr(module, name) for name in _REQUIRED}
    functions |= {name: getattr(module, name, None) for name in _OPTIONAL}
    return Contract(name=path.name, settings=dict(settings), **functions)
