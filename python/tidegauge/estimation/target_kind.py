# SPDX-License-Identifier: BSD-3-Clause
"""Which kind of target a text names. Needs no torch."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Literal

from tidegauge.estimation.contract import ContractError

TargetKind = Literal["class", "config", "file", "hub"]
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


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
        if find_cached_config(text):
            return "hub"
        known = "a Python file, a config.json or module:Class"
        if "/" in text and _HUB_ID.fullmatch(text) and not path.suffix:
            known += f", or an id in the cache of Hugging Face: hf download {text} config.json"
        raise ContractError(f"no such file: {text} (expected {known})")
    if path.is_dir() or path.suffix == ".json":
        return "config"
    if path.suffix != ".py":
        raise ContractError(f"{text} is neither a Python file (.py) nor a config file (.json)")
    return "file"


def find_cached_config(name: str) -> Path | None:
    """The config.json of a model of the Hugging Face Hub, if it is in the local cache.

    Nothing is downloaded.
    """
    if not _HUB_ID.fullmatch(name):
        return None
    try:
        from huggingface_hub import try_to_load_from_cache

        found = try_to_load_from_cache(name, "config.json")
    except (ImportError, ValueError):  # not installed; not an id of the Hub
        return None
    return Path(found) if isinstance(found, str) else None
