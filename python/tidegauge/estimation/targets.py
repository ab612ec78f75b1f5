# SPDX-License-Identifier: BSD-3-Clause
"""Makes a contract from a target: a Python file, a Hugging Face config or id, or `module:Class`."""

from __future__ import annotations

import importlib.util
import os
import sys
import traceback
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType

from tidegauge.estimation.classes import load_class
from tidegauge.estimation.contract import (
    Contract,
    ContractError,
    ModelError,
    describe_error,
    describe_line,
)
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
    module = _import_file(path)
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


def _import_file(path: Path) -> ModuleType:
    name = f"_tidegauge_target_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickles look for it there
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        with redirect_stdout(sys.stderr):  # standard output is for our results
            spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        where = describe_line(traceback.extract_tb(error.__traceback__), path.name)
        raise ModelError(f"cannot import {path}{where}: {describe_error(error)}") from error
    finally:
        sys.path.remove(folder)
    return module
