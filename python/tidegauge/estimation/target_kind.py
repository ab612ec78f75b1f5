# SPDX-License-Identifier: BSD-3-Clause
"""Which kind of target a text names. Needs no torch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from tidegauge.estimation.contract import ContractError

TargetKind = Literal["class", "config", "file"]


def find_target_kind(target: str | os.PathLike[str], config: str | None = None) -> TargetKind:
    """Raises ContractError if the target is none of them, or does not suit `config`."""
    text = os.fspath(target)
    path = Path(text)
    module, colon, name = text.partition(":")
    if not path.exists() and colon and module and name.isidentifier():
        return "class"
    if config is not None:
        raise ContractError(f"a config requires a module:Class target (got '{text}')")
    if not path.exists():
        raise ContractError(
            f"no such file: {text} (expected a Python file, a config.json or module:Class)"
        )
    if path.is_dir() or path.suffix == ".json":
        return "config"
    if path.suffix != ".py":
        raise ContractError(f"{text} is neither a Python file (.py) nor a config file (.json)")
    return "file"
