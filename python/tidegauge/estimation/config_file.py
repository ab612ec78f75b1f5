# SPDX-License-Identifier: BSD-3-Clause
"""Reads the config of a model."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from tidegauge.estimation.contract import ContractError


def read_config(path: Path) -> dict[str, Any]:
    """Reads JSON, or TOML if the file name ends in .toml. Raises OSError or ContractError."""
    text = path.read_text(encoding="utf-8")
    try:
        values = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except ValueError as error:
        raise ContractError(f"cannot parse {path}: {error}") from None
    if not isinstance(values, dict):
        raise ContractError(f"{path} contains a {type(values).__name__} (expected an object)")
    return values
