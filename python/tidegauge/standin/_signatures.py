# SPDX-License-Identifier: BSD-3-Clause
"""Functions that nobody wrote by hand: they succeed, report sizes of 0, and make an object if they
create one.

Where a function's results are is read from the headers beside torch, if they are installed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_PROTOTYPE = re.compile(r"\b(\w+)\s*\(([^(){};]*)\)\s*;", re.DOTALL)
_SIZE = re.compile(
    r"^(?P<type>size_t|int|int64_t|unsigned int|uint32_t|uint64_t|unsigned long long)\s*\*\s*"
    r"(?:\w*(?:[sS]ize|[lL]work|[bB]ytes|[cC]ount|[nN]um|[iI]nfo)\w*)?$"
)
_FLOATING = re.compile(r"^(const )?(?P<type>float|double)\s+\w+$")
_TEXT = re.compile(r"(ErrorString|ErrorName|StatusString|StatusName)$")


def read_prototypes(folders: Iterable[Path]) -> dict[str, list[str]]:
    """The parameters of each function that the headers in these folders declare."""
    found: dict[str, list[str]] = {}
    for folder in folders:
        for header in sorted(folder.glob("*.h")):
            text = _COMMENT.sub(" ", header.read_text(encoding="utf-8", errors="replace"))
            for name, parameters in _PROTOTYPE.findall(text):
                words = [" ".join(part.split()) for part in parameters.split(",")]
                found.setdefault(name, [] if words == ["void"] else words)
    return found


def write_function(name: str, parameters: list[str] | None) -> str:
    """C++ code of a function that does nothing."""
    if _TEXT.search(name):
        return f'const char* {name}(...) {{ return "an error of the stand-in for CUDA"; }}\n'
    if "Create" in name:
        return f"int {name}(void** out, ...) {{ *out = any_object; return 0; }}\n"
    sizes = [
        (index, match["type"])
        for index, parameter in enumerate(parameters or [])
        if (match := _SIZE.match(parameter))
    ]
    if not sizes:
        return f"int {name}(...) {{ return 0; }}\n"
    types = ["long"] * (sizes[-1][0] + 1)
    for index, parameter in enumerate((parameters or [])[: len(types)]):
        if match := _FLOATING.match(parameter):
            types[index] = match["type"]
    for index, type_name in sizes:
        types[index] = f"{type_name}*"
    declared = ", ".join(f"{type_name} a{index}" for index, type_name in enumerate(types))
    written = " ".join(f"if (a{index}) *a{index} = 0;" for index, _ in sizes)
    return f"int {name}({declared}, ...) {{ {written} return 0; }}\n"


def write_source(names: Iterable[str], prototypes: dict[str, list[str]]) -> str:
    functions = "".join(write_function(name, prototypes.get(name)) for name in sorted(names))
    return (
        "#include <cstddef>\n#include <cstdint>\n"
        "namespace { [[maybe_unused]] char any_object[64]; }\n"
        f'extern "C" {{\n{functions}}}\n'
    )
