# SPDX-License-Identifier: BSD-3-Clause
"""Runs tools/check_layers.py on small made-up trees. Each rule is broken once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

MAP = """\
```layers src
include:
core/util: include
core/events: include, core/util
capture: include, core, torch
capture/compat: core, torch
```
```layers python/tidegauge
_C, _util:
_torch: _C
report: _util
cli: report, _util
__init__: report
```
"""
GOOD = {
    "docs/architecture.md": MAP,
    "include/tidegauge/export.h": "",
    "src/core/util/table.h": '#include "tidegauge/export.h"\n',
    "src/core/events/event.h": '#include <vector>\n#include "core/util/table.h"\n',
    "src/core/events/event.cpp": '#include "core/events/event.h"\n',
    "src/capture/hook.cpp": '#include <ATen/Tensor.h>\n#include "core/events/event.h"\n',
    "src/capture/compat/version.h": "// TORCH_VERSION, torch 2.13\n",
    "python/tidegauge/__init__.py": "from tidegauge.report import text\n",
    "python/tidegauge/_C.pyi": "",
    "python/tidegauge/_util/__init__.py": "",
    "python/tidegauge/_util/sizes.py": "",
    "python/tidegauge/_torch/compat.py": 'BUILT_FOR = "2.13"\n',
    "python/tidegauge/report/__init__.py": "from tidegauge.report.text import render\n",
    "python/tidegauge/report/text.py": "from tidegauge._util import sizes\n",
    "python/tidegauge/include/built.py": "import tidegauge.cli\n",
}

Check = Callable[..., list[str]]


@pytest.fixture
def check(repo: Path, tmp_path: Path) -> Check:
    """Writes the good tree with some files replaced, and returns the lines that the tool prints."""

    def check(changes: dict[str, str] | None = None) -> list[str]:
        for name, text in (GOOD | (changes or {})).items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        done = subprocess.run(
            [sys.executable, repo / "tools" / "check_layers.py", tmp_path],
            capture_output=True,
            text=True,
        )
        assert done.stderr == ""
        assert done.returncode == (1 if done.stdout else 0)
        return done.stdout.splitlines()

    return check


def test_good_tree_has_no_violations(check: Check) -> None:
    assert check() == []


def test_include_of_a_higher_folder_is_reported(check: Check) -> None:
    files = {
        "src/core/util/table.h": '#include "core/events/ids.h"\n',
        "src/core/events/ids.h": "",
    }
    assert check(files) == [
        "src/core/util/table.h depends on src/core/events/ids.h: layer: core/util may not depend "
        "on core/events (docs/architecture.md)"
    ]


def test_include_of_a_library_that_the_map_does_not_allow_is_reported(check: Check) -> None:
    assert check({"src/core/events/event.h": "#include <torch/nn.h>\n"}) == [
        "src/core/events/event.h depends on torch: layer: core/events may not depend on torch "
        "(docs/architecture.md)"
    ]


def test_folder_that_is_not_in_the_map_is_reported(check: Check) -> None:
    assert check({"src/plan/search.cpp": '#include "core/util/table.h"\n'}) == [
        "src/plan/search.cpp: layer: no line of docs/architecture.md has its folder"
    ]


def test_cycle_of_units_through_a_source_is_reported(check: Check) -> None:
    """Neither header includes the other, but the units need each other."""
    files = {
        "src/core/events/a.h": "",
        "src/core/events/a.cpp": '#include "core/events/b.h"\n',
        "src/core/events/b.h": '#include "core/events/c.h"\n',
        "src/core/events/c.h": "",
        "src/core/events/c.cpp": '#include "core/events/a.h"\n',
    }
    assert check(files) == [
        "src/core/events/a.cpp depends on src/core/events/b.h, src/core/events/b.h depends on "
        "src/core/events/c.h, src/core/events/c.cpp depends on src/core/events/a.h: cycle: "
        "dependencies must not lead back"
    ]


@pytest.mark.parametrize(
    "text",
    [
        "def render():\n    from tidegauge.report import page\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import tidegauge.report.page\n",
    ],
    ids=["lazy", "for types"],
)
def test_cycle_of_modules_with_a_late_import_is_reported(check: Check, text: str) -> None:
    files = {
        "python/tidegauge/report/text.py": text,
        "python/tidegauge/report/page.py": "from tidegauge.report.text import render\n",
    }
    assert check(files) == [
        "python/tidegauge/report/page.py depends on python/tidegauge/report/text.py, "
        "python/tidegauge/report/text.py depends on python/tidegauge/report/page.py: cycle: "
        "dependencies must not lead back"
    ]


@pytest.mark.parametrize("line", ["from tidegauge import cli", "from ..cli import main"])
def test_import_of_a_higher_package_is_reported(check: Check, line: str) -> None:
    files = {
        "python/tidegauge/report/text.py": f"{line}\n",
        "python/tidegauge/cli/__init__.py": "",
    }
    assert check(files) == [
        "python/tidegauge/report/text.py depends on python/tidegauge/cli/__init__.py: layer: "
        "report may not depend on cli (docs/architecture.md)"
    ]


@pytest.mark.parametrize("line", ["import torch.nn", "from torch import nn"])
def test_import_of_torch_where_the_map_does_not_name_it(check: Check, line: str) -> None:
    assert check({"python/tidegauge/report/text.py": f"def render():\n    {line}\n"}) == [
        "python/tidegauge/report/text.py depends on torch: layer: report may not depend on torch "
        "(docs/architecture.md)"
    ]


@pytest.mark.parametrize(
    ("call", "target"),
    [
        ('importlib.import_module("tidegauge.cli.main")', "python/tidegauge/cli/main.py"),
        ('import_module("tidegauge.cli")', "python/tidegauge/cli/__init__.py"),
        ('import_module(".cli", "tidegauge")', "python/tidegauge/cli/__init__.py"),
        ('import_module("torch.nn")', "torch"),
        ('__import__("torch")', "torch"),
    ],
)
def test_module_imported_by_name_is_reported(check: Check, call: str, target: str) -> None:
    files = {
        "python/tidegauge/report/text.py": f"def render():\n    return {call}.render\n",
        "python/tidegauge/cli/__init__.py": "",
        "python/tidegauge/cli/main.py": "",
    }
    layer = "torch" if target == "torch" else "cli"
    assert check(files) == [
        f"python/tidegauge/report/text.py depends on {target}: layer: report may not depend on "
        f"{layer} (docs/architecture.md)"
    ]


@pytest.mark.parametrize(
    ("path", "line", "found"),
    [
        ("include/tidegauge/export.h", "// since torch 2.12", "torch 2.12"),
        ("src/core/util/table.h", "// as torch 2.12 does", "torch 2.12"),
        ("src/core/util/table.h", "#if TORCH_VERSION_MINOR > 13", "TORCH_VERSION_MINOR"),
        ("python/tidegauge/report/text.py", 'if version == "2.13":', "2.13"),
    ],
)
def test_torch_version_outside_the_compat_files_is_reported(
    check: Check, path: str, line: str, found: str
) -> None:
    assert check({path: f"{line}\n    pass\n"}) == [
        f"{path}:1: version: names the torch version '{found}'; only src/capture/compat/ and "
        "src/allocator/tie_rule. and python/tidegauge/_torch/compat.py may"
    ]


@pytest.mark.parametrize(
    ("path", "limit"),
    [
        ("src/core/util/table.h", 150),
        ("src/core/util/table.cpp", 500),
        ("src/bindings/torch/module.cpp", 250),
        ("python/tidegauge/report/text.py", 500),
        ("tests/core/util/tables.h", 150),
        ("tests/core/util/test_table.cpp", 500),
        ("tests/python/report/test_text.py", 500),
    ],
)
def test_file_that_is_too_long_is_reported(check: Check, path: str, limit: int) -> None:
    assert check({path: "\n" * limit}) == []
    assert check({path: "\n" * (limit + 1)}) == [
        f"{path}: size: has {limit + 1} lines; at most {limit} are allowed"
    ]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("core/util: include\n", "core/util include\n", "expected 'folder: what it may depend on'"),
        ("core/util: include\n", "core/util: core/events\n", "which no line above names"),
        ("```layers src\n", "```\n", "has no block ```layers src"),
    ],
)
def test_invalid_map_is_reported(check: Check, old: str, new: str, message: str) -> None:
    (line,) = check({"docs/architecture.md": MAP.replace(old, new)})
    assert message in line
