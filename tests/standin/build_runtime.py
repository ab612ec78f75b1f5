# SPDX-License-Identifier: BSD-3-Clause
"""Builds the stand-in for the CUDA runtime that a torch with CUDA needs."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("cuda_runtime.cpp")
SONAME = "libcudart.so.13"  # its layout of cudaDeviceProp is in the source


def _run(*command: str | Path) -> str:
    ended = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def needs_it(torch_folder: Path) -> bool:
    """True if this torch uses the CUDA runtime that we stand in for."""
    library = torch_folder / "lib" / "libc10_cuda.so"
    return library.exists() and SONAME in _run("readelf", "-d", library)


def _needed_symbols(torch_folder: Path, pattern: str) -> set[str]:
    libraries = sorted((torch_folder / "lib").glob("*.so"))
    text = _run("nm", "-D", "--undefined-only", *libraries)
    return set(re.findall(rf" U ({pattern})$", text, re.MULTILINE))


def _compile(library: Path, missing: set[str], *options: str | Path) -> Path:
    """With a function that returns 0, which is success, for each missing one."""
    generated = library.with_suffix(".cpp")
    lines = [f'extern "C" int {name}() {{ return 0; }}\n' for name in sorted(missing)]
    generated.write_text("".join(lines))
    _run(
        *("c++", "-std=c++20", "-O1", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror"),
        *(generated, "-o", library, f"-Wl,-soname,{library.name}", *options),
    )
    return library


def build(torch_folder: Path, folder: Path) -> tuple[Path, Path]:
    """The runtime and the driver, for LD_PRELOAD: torch has an RPATH, which wins over
    LD_LIBRARY_PATH."""
    own = set(re.findall(r"^(?:[\w ]+[ *]+)(\w+)\(", SOURCE.read_text(), re.MULTILINE))
    versions = folder / "versions.map"
    versions.write_text(f"{SONAME} {{ global: cuda*; __cuda*; local: *; }};\n")
    runtime = {name.split("@")[0] for name in _needed_symbols(torch_folder, rf"\w+@{SONAME}")}
    return (
        _compile(folder / SONAME, runtime - own, SOURCE, f"-Wl,--version-script={versions}"),
        _compile(folder / "libcuda.so.1", _needed_symbols(torch_folder, r"cu(?!File)[A-Z]\w+")),
    )
