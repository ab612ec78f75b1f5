# SPDX-License-Identifier: BSD-3-Clause
"""The compiled libraries have only the allowed dependencies and contain each symbol once."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., str]


@pytest.fixture
def library(package: Path) -> Path:
    return package / "lib" / "libtidegauge.so"


@pytest.fixture
def extension(package: Path) -> Path:
    (path,) = package.glob("_C.*.so")
    return path


def needed(run: Run, path: Path) -> set[str]:
    return set(re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "-d", path)))


def symbols(run: Run, path: Path, which: str) -> set[str]:
    lines = run("nm", "-D", "-C", which, path).splitlines()
    return {re.sub(r"^[0-9a-f ]*[A-Za-z] ", "", line) for line in lines}


def test_library_does_not_depend_on_python(run: Run, library: Path) -> None:
    assert not [name for name in needed(run, library) if "python" in name]
    undefined = symbols(run, library, "--undefined-only")
    assert not [name for name in undefined if name.startswith(("Py", "_Py", "pybind11"))]


def test_library_needs_torch_sqlite_and_the_c_runtime_only(run: Run, library: Path) -> None:
    allowed = r"lib(torch|torch_cpu|c10|sqlite3|stdc\+\+|gcc_s|c|m)\.so[.\d]*|ld-linux.*"
    assert not [name for name in needed(run, library) if not re.fullmatch(allowed, name)]


def test_core_is_in_the_library_but_not_in_the_extension(
    run: Run, repo: Path, library: Path, extension: Path
) -> None:
    assert "libtidegauge.so" in needed(run, extension)
    # Only functions from the core's .cpp files, which are never inlined into other libraries.
    core = run(
        "nm", "-C", "--defined-only", library.parents[3] / "build/release/libtidegauge_core.a"
    )
    functions = set(re.findall(r" T (tidegauge::.*)", core))
    assert functions
    assert functions <= symbols(run, library, "--defined-only")
    assert not functions & set(re.findall(r" [TtBbDd] (tidegauge::.*)", run("nm", "-C", extension)))


def test_extension_exports_only_its_entry_point(run: Run, extension: Path) -> None:
    # Weak symbols are inline functions of visible classes, which the loader shares.
    offered = re.findall(r" [TBD] (.*)", run("nm", "-D", "-C", "--defined-only", extension))
    assert "PyInit__C" in offered
    assert not [name for name in offered if name.startswith("tidegauge::")]
