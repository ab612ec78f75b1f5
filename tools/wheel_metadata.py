# SPDX-License-Identifier: BSD-3-Clause
"""The metadata that depends on the build, for scikit-build-core (pyproject.toml names this file).

A build for torch needs exactly its minor version at run time; a build without torch needs none, and
runs on an older Python, too. TIDEGAUGE_WITH_TORCH=OFF builds without torch.

TIDEGAUGE_LOCAL_VERSION, e.g. torch2.13, becomes part of the version, so that wheels for several
versions of torch have different names. Builds from an sdist have no such part: pip expects of them
the version that the sdist names.
"""

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parents[1] / "python"


def dynamic_metadata(settings: Mapping[str, Any], project: Mapping[str, Any]) -> dict[str, Any]:
    with_torch = os.environ.get("TIDEGAUGE_WITH_TORCH") != "OFF"
    return {
        "version": find_version(),
        "dependencies": [
            "tomli>=2; python_version < '3.11'",
            *(list_torch() if with_torch else []),
        ],
        "requires-python": ">=3.11" if with_torch else ">=3.10",
        "classifiers": [
            "Operating System :: POSIX :: Linux",
            "Programming Language :: C++",
            *(f"Programming Language :: Python :: {each}" for each in list_tested(with_torch)),
        ],
    }


def list_tested(with_torch: bool) -> list[str]:
    """The versions of Python that it ran on (docs/packages.md)."""
    return ["3.11"] if with_torch else ["3.10", "3.11", "3.12", "3.13"]


def dynamic_wheel(settings: Mapping[str, Any]) -> dict[str, bool]:
    """Marks in an sdist what a wheel of it may change."""
    return {"classifiers": True, "dependencies": True, "requires-python": True}


def find_version() -> str:
    text = (PACKAGE / "tidegauge" / "_build_info.py").read_text(encoding="utf-8")
    match = re.search(r'^__version__ = "(.*)"', text, re.MULTILINE)
    assert match is not None
    local = os.environ.get("TIDEGAUGE_LOCAL_VERSION")
    return f"{match[1]}+{local}" if local else match[1]


def list_torch() -> list[str]:
    sys.path.insert(0, str(PACKAGE))
    from tidegauge._torch.compat import find_torch_version

    found = find_torch_version()
    # If there is none, CMake says what to do.
    return [f"torch=={'.'.join(found.split('.')[:2])}.*"] if found else []
