# SPDX-License-Identifier: BSD-3-Clause
"""Reads the config of a model."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from tidegauge._util.files import MAX_TEXT_BYTES, read_file
from tidegauge.errors import FormatError
from tidegauge.estimation.contract import ContractError


def read_config(path: Path) -> dict[str, Any]:
    """Reads JSON, or TOML if the file name ends in .toml. Raises OSError or ContractError."""
    try:
        text = read_file(path, MAX_TEXT_BYTES).decode()
        values = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except FormatError as error:
        raise ContractError(str(error)) from None
    except RecursionError:
        raise ContractError(f"cannot parse {path}: it is nested too deeply") from None
    except ValueError as error:
        raise ContractError(f"cannot parse {path}: {error}") from None
    if not isinstance(values, dict):
        raise ContractError(f"{path} contains a {type(values).__name__} (expected an object)")
    return values
