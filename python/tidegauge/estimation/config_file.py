# SPDX-License-Identifier: BSD-3-Clause
"""Reads the config of a model."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from tidegauge.estimation.contract import ContractError


def read_config(path: Path) -> dict[str, Any]:
    """JSON, or TOML if it is called so; OSError, ContractError."""
    text = path.read_text(encoding="utf-8")
    try:
        values = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except ValueError as error:
        raise ContractError(f"{path} cannot be read: {error}") from None
    if not isinstance(values, dict):
        raise ContractError(f"{path} holds a {type(values).__name__}; an object is expected")
    return values
