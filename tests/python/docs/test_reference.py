# SPDX-License-Identifier: BSD-3-Clause
"""The reference of the site has every public name (tools/docs_hooks.py)."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import tidegauge

REPO = Path(__file__).parents[3]
NO_TEXT = {"__version__", "cmake_prefix_path"}


def load_hooks() -> Any:
    spec = importlib.util.spec_from_file_location("docs_hooks", REPO / "tools" / "docs_hooks.py")
    assert spec is not None
    assert spec.loader is not None
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    return hooks


def test_python_page_has_every_public_name() -> None:
    titles = set(load_hooks().render_python().splitlines())
    names = {name for name in dir(tidegauge) if name not in NO_TEXT}
    names = {name for name in names if not isinstance(getattr(tidegauge, name), ModuleType)}
    names |= {f"plan.{name}" for name in tidegauge.plan.__all__}
    assert len(names) > 20
    assert {name for name in names if f"## {name}" not in titles} == set()


def test_drop_in_page_has_every_public_name() -> None:
    hooks = load_hooks()
    text = hooks.render_drop_ins()
    for module in hooks.DROP_INS:
        members = vars(importlib.import_module(f"tidegauge.{module}"))
        public = members.get("__all__") or [name for name in members if name[0] != "_"]
        assert [name for name, _ in hooks.list_names(module)] == list(public)
        assert f"## tidegauge.{module}\n" in text
        missing = [n for n in public if f"### {n}\n" not in text and f"`{n}` (" not in text]
        assert missing == []
    every = {path.stem for path in (REPO / "python" / "tidegauge").glob("*.py")}
    ours = {"callbacks", "errors", "plan", "pytest_plugin", "recorder", "threads", "tracking"}
    assert set(hooks.DROP_INS) == {name for name in every - ours if not name.startswith("_")}


def test_lists_and_tables_after_a_sentence_stay_lists_and_tables() -> None:
    text = "Rules:\n- one\n  more\n- two\n\nWords.\n| a |\n|---|\n```layers x/y\n- code\n```\n"
    assert load_hooks().separate_blocks(text) == (
        "Rules:\n\n- one\n  more\n- two\n\nWords.\n\n| a |\n|---|\n\n```layers\n- code\n```\n"
    )
