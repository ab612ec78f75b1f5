# SPDX-License-Identifier: BSD-3-Clause
"""What `estimate` has to know of a program: docs/estimate.md. Who gives it: a file, or Python."""

from __future__ import annotations

import importlib.util
import os
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import nn

from tidegauge._util.suggestions import did_you_mean

_REQUIRED = ("build_model", "make_inputs", "compute_loss")
_OPTIONAL = ("blocks", "shard", "tensor_parallel_plan", "make_optimizer")
_SMALLEST = """\
    SETTINGS = {"batch": 1}
    def build_model(settings): return torch.nn.Linear(8, 8)
    def make_inputs(settings): return torch.randn(settings.batch, 8)
    def compute_loss(model, inputs): return model(inputs).sum()"""


class ContractError(ValueError):
    """The target is none, or lacks something."""


class ModelError(RuntimeError):
    """The code of the target has raised; its exception is the cause."""


@dataclass(frozen=True)
class Contract:
    """A program that can be estimated. All functions but the first three may be missing.

    `settings`: the names that `--set` may change, with the values they have otherwise; functions
    get them as attributes. `blocks(model)`: the modules to checkpoint and shard one by one.
    `shard(model, fully_shard)`: calls `fully_shard(module)` on each unit, the root last.
    `tensor_parallel_plan(model)`: as `parallelize_module` takes it. `make_optimizer(model)`.
    """

    name: str
    build_model: Callable[[Any], nn.Module]
    make_inputs: Callable[[Any], Any]
    compute_loss: Callable[[nn.Module, Any], torch.Tensor]
    settings: Mapping[str, Any] = field(default_factory=dict)
    blocks: Callable[[nn.Module], Sequence[nn.Module]] | None = None
    shard: Callable[[nn.Module, Callable[..., Any]], object] | None = None
    tensor_parallel_plan: Callable[[nn.Module], Mapping[str, Any]] | None = None
    make_optimizer: Callable[[nn.Module], torch.optim.Optimizer] | None = None

    def resolve(self, changes: Mapping[str, Any]) -> SimpleNamespace:
        """All settings; ValueError for a name that is none."""
        for name in changes:
            if name not in self.settings:
                hint = (
                    did_you_mean(name, [*self.settings]) if self.settings else "SETTINGS is missing"
                )
                raise ValueError(f"{self.name} has no setting '{name}': {hint}")
        return SimpleNamespace(**{**self.settings, **changes})

    def parse_setting(self, name: str, text: str) -> Any:
        """As the type of the value that the setting has otherwise."""
        value = getattr(self.resolve({name: text}), name)
        default = self.settings[name]
        if isinstance(default, bool):
            if value not in ("yes", "no", "true", "false"):
                raise ValueError(f"the setting {name} is yes or no, not '{text}'")
            return value in ("yes", "true")
        if isinstance(default, int | float):
            try:
                return type(default)(text)
            except ValueError:
                kind = "a whole number" if isinstance(default, int) else "a number"
                raise ValueError(f"the setting {name} is {kind}, not '{text}'") from None
        return text

    @contextmanager
    def telling(self, doing: str) -> Iterator[None]:
        """Whatever is raised within is the program's: a ModelError says where it was."""
        try:
            yield
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            package = str(Path(__file__).parent.parent)
            theirs = [each for each in frames if not each.filename.startswith(package)]
            where = _describe_line(theirs, self.name)
            raise ModelError(f"{doing} of {self.name} failed{where}: {_tell(error)}") from error


def _tell(error: Exception) -> str:
    """In one line; torch may write pages."""
    first = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {textwrap.shorten(first, 400, placeholder=' ...')}"


def _describe_line(frames: Sequence[traceback.FrameSummary], name: str) -> str:
    """The innermost line of the program itself, or else of anybody's."""
    own = [each for each in frames if Path(each.filename).name == Path(name).name] or frames[-1:]
    return f" ({os.path.basename(own[-1].filename)}, line {own[-1].lineno})" if own else ""


def load_contract(target: str | os.PathLike[str], config: str | None = None) -> Contract:
    """`target`: a Python file, a config of Hugging Face (.json), or `module:Class` with `config`.

    ContractError for what is none; ModelError if its code fails.
    """
    text = os.fspath(target)
    path = Path(text)
    module, colon, name = text.partition(":")
    if not path.exists() and colon and module and name.isidentifier():
        from tidegauge.estimation.classes import load_class

        return load_class(module, name, config)
    if config is not None:
        raise ContractError(f"a config goes with module:Class, and {text} is none")
    if not path.exists():
        raise ContractError(
            f"{text}: no such file; a Python file, a config.json or module:Class is expected"
        )
    if path.is_dir() or path.suffix == ".json":
        from tidegauge.estimation.transformers_models import load_config

        return load_config(path / "config.json" if path.is_dir() else path)
    if path.suffix != ".py":
        raise ContractError(f"{text} is neither a Python file (.py) nor a config (.json)")
    return _load_file(path)


def _load_file(path: Path) -> Contract:
    module = _import_file(path)
    missing = [name for name in _REQUIRED if not callable(getattr(module, name, None))]
    if missing:
        raise ContractError(
            f"{path} has no {' and no '.join(missing)}. The smallest file that can be estimated:\n"
            f"    import torch\n{_SMALLEST}"
        )
    settings = getattr(module, "SETTINGS", {})
    if not isinstance(settings, Mapping):
        raise ContractError(
            f"SETTINGS of {path} is a {type(settings).__name__}; a dictionary of names and values "
            "is expected"
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
        with redirect_stdout(sys.stderr):  # ours is for results
            spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        where = _describe_line(traceback.extract_tb(error.__traceback__), path.name)
        raise ModelError(f"{path} cannot be imported{where}: {_tell(error)}") from error
    finally:
        sys.path.remove(folder)
    return module
