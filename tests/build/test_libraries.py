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


@pytest.fixture
def core_extension(package: Path) -> Path:
    (path,) = package.glob("_core.*.so")
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


def test_cuda_adapter_needs_torch_and_the_c_runtime_only(run: Run, library: Path) -> None:
    adapter = library.with_name("libtidegauge_cuda.so")
    allowed = r"lib(torch_cpu|c10|stdc\+\+|gcc_s|c|m)\.so[.\d]*|ld-linux.*"
    assert not [name for name in needed(run, adapter) if not re.fullmatch(allowed, name)]
    assert not [name for name in symbols(run, adapter, "--undefined-only") if "cuda" in name]
    assert "tidegauge_attach_cuda" in symbols(run, adapter, "--defined-only")


def test_no_source_includes_a_header_of_nvidia(run: Run, repo: Path) -> None:
    """Also on a machine where the compiler would find the toolkit."""
    own = set((repo / "src/capture/compat/cuda/declarations").iterdir())
    names = {path.name for path in own}  # torch includes all others through these
    build = repo / "build/release"
    # With ccache, paths may be relative to the build folder.
    used = {(build / path).resolve() for path in run("ninja", "-C", build, "-t", "deps").split()}
    torchs_own = {path for path in used if path.parent.name == "torch"}  # torch/cuda.h
    assert {path for path in used - torchs_own if path.name in names} == own


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


def test_extensions_export_only_their_entry_points(
    run: Run, extension: Path, core_extension: Path
) -> None:
    # Weak symbols are inline functions of visible classes, which the loader shares.
    for path, entry in ((extension, "PyInit__C"), (core_extension, "PyInit__core")):
        offered = re.findall(r" [TBD] (.*)", run("nm", "-D", "-C", "--defined-only", path))
        assert entry in offered
        assert not [name for name in offered if name.startswith("tidegauge::")]


def test_core_extension_needs_sqlite_and_the_c_runtime_only(run: Run, core_extension: Path) -> None:
    allowed = r"lib(sqlite3|stdc\+\+|gcc_s|c|m)\.so[.\d]*|ld-linux.*"
    assert not [name for name in needed(run, core_extension) if not re.fullmatch(allowed, name)]


def test_both_copies_of_the_core_use_one_sqlite(
    run: Run, library: Path, core_extension: Path
) -> None:
    """Two copies of SQLite in a process break each other's file locks."""
    assert "libsqlite3.so.0" in needed(run, library) & needed(run, core_extension)
    for path in (library, core_extension):
        assert not re.findall(r" [TtWw] sqlite3_", run("nm", "--defined-only", path))
