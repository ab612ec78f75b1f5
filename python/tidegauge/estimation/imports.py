# SPDX-License-Identifier: BSD-3-Clause
"""Imports the user's files and modules, whose errors are theirs."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType

from tidegauge.estimation.contract import (
    ContractError,
    ModelError,
    describe_error,
    describe_line,
)


def import_module_of_target(module_name: str) -> ModuleType:
    """Raises ContractError if there is no such module, ModelError if its code fails."""
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ContractError(
            f"cannot import {module_name}: {error} (check the folder and PYTHONPATH)"
        ) from None
    except Exception as error:
        raise ModelError(f"cannot import {module_name}: {error!r}") from error


def import_file(path: Path) -> ModuleType:
    """Raises ModelError if its code fails."""
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
