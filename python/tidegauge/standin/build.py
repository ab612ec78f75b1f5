# SPDX-License-Identifier: BSD-3-Clause
"""Builds the stand-ins for the CUDA libraries that the installed torch needs.

One shared object for each library, with its file name and symbol versions. The process that uses
them has them in LD_PRELOAD: torch names the folders of the real ones in its own files, so
LD_LIBRARY_PATH would come too late.

The result is kept in the user's cache, by the contents of our sources and the files of torch.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from tidegauge.standin import _signatures, _symbols
from tidegauge.standin._errors import StandinError
from tidegauge.standin._symbols import DRIVER, NVML, run_tool

# The sources of each library, in the folder of our C++ sources; all other functions are generated.
_SOURCES = {
    "libcudart": ("state", "runtime"),
    DRIVER.partition(".so")[0]: ("runtime/driver.cpp",),
    "libcublas": ("libraries/cublas.cpp",),
    "libcublasLt": ("libraries/cublaslt.cpp",),
    "libcudnn": ("libraries/cudnn.cpp",),
    "libcufft": ("libraries/cufft.cpp",),
    "libnccl": ("libraries/nccl.cpp",),
    "libnvrtc": ("libraries/nvrtc.cpp",),
    NVML.partition(".so")[0]: ("libraries/nvml.cpp",),
}
_RUNTIME = "libcudart"
_FLAGS = ("-std=c++20", "-O1", "-fPIC", "-w")


@dataclass(frozen=True)
class Torch:
    """The installed torch, as its files describe it."""

    folder: Path
    version: str
    cuda: str  # such as "13.2"

    @property
    def cuda_version(self) -> int:
        """The version as CUDA writes it: 13020 for 13.2."""
        major, _, minor = self.cuda.partition(".")
        return int(major) * 1000 + int(minor or 0) * 10


@dataclass(frozen=True)
class Standin:
    """The built libraries."""

    folder: Path
    libraries: tuple[Path, ...]


def find_torch() -> Torch:
    """Raises StandinError if there is no torch with CUDA."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        raise StandinError("found no torch. Run `pip install torch`.")
    folder = Path(spec.origin).parent
    text = (folder / "version.py").read_text(encoding="utf-8")
    version = re.search(r"^__version__ = ['\"](.*)['\"]", text, re.MULTILINE)
    cuda = re.search(r"^cuda\b.*= ['\"](.*)['\"]", text, re.MULTILINE)
    found = version[1] if version else "of an unknown version"
    if cuda is None or not (folder / "lib" / "libc10_cuda.so").exists():
        raise StandinError(
            f"torch {found} has no CUDA. Install a CUDA build of the same version, e.g. "
            f"`pip install --force-reinstall torch=={found.partition('+')[0]}` from PyPI; it "
            "needs no GPU."
        )
    if int(cuda[1].partition(".")[0]) not in (12, 13):
        raise StandinError(
            f"torch {found} uses CUDA {cuda[1]}; the stand-in supports CUDA 12 and 13."
        )
    return Torch(folder, found, cuda[1])


def find_sources() -> Path:
    """The folder of our C++ sources, which are part of the package."""
    folder = Path(__file__).parent.parent / "share" / "standin"
    if not folder.exists():
        raise StandinError(f"the sources of the stand-in are missing ({folder}); reinstall it.")
    return folder


def find_compiler() -> str:
    """Raises StandinError if there is none."""
    for name in filter(None, (os.environ.get("CXX"), "c++", "g++", "clang++")):
        if (path := shutil.which(name)) is not None:
            return path
    raise StandinError(
        "the stand-in for CUDA needs a C++ compiler, but found none. Install one, e.g. "
        "`apt-get install g++`, or set CXX."
    )


def find_cache() -> Path:
    """Where the libraries for this torch are or would be."""
    torch, sources = find_torch(), find_sources()
    key = hashlib.sha256(repr((torch.version, torch.cuda, str(torch.folder))).encode())
    for file in _symbols.find_objects(torch.folder):
        stat = file.stat()
        key.update(repr((file.name, stat.st_size, stat.st_mtime_ns)).encode())
    for file in [*sorted(sources.rglob("*.*")), *sorted(Path(__file__).parent.glob("*.py"))]:
        key.update(file.read_bytes())
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "tidegauge" / "standin" / key.hexdigest()[:16]


def find_built() -> Standin | None:
    """The libraries for this torch, if they were built."""
    folder = find_cache()
    if not folder.exists():
        return None
    libraries = [file for file in sorted(folder.iterdir()) if ".so" in file.name]
    # The others use its functions.
    libraries.sort(key=lambda file: not file.name.startswith(_RUNTIME))
    return Standin(folder, tuple(libraries))


def build() -> Standin:
    """The libraries for the installed torch; builds them if they are not in the cache."""
    if (built := find_built()) is not None:
        return built
    folder = find_cache()
    compiler, torch = find_compiler(), find_torch()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="build-") as work:
        made = Path(work) / "made"
        made.mkdir()
        _build_all(compiler, torch, Path(work), made)
        try:
            made.rename(folder)
        except OSError:  # another process was faster
            if not folder.exists():
                raise
    built = find_built()
    assert built is not None
    return built


def _build_all(compiler: str, torch: Torch, work: Path, made: Path) -> None:
    sources = find_sources()
    needed = _symbols.find_needed(_symbols.find_objects(torch.folder))
    needed[NVML] = {}
    prototypes = _signatures.read_prototypes(_find_headers(torch))
    defines = _make_defines(torch)
    compile_one = partial(_compile, compiler, work, (f"-I{sources.parent}", *defines))
    libraries = {file: list(_find_sources(sources, file)) for file in needed}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        waiting = {
            file: [pool.submit(compile_one, file, source) for source in found]
            for file, found in libraries.items()
        }
        objects = {file: [job.result() for job in jobs] for file, jobs in waiting.items()}
    for file, versions in needed.items():
        defined = _symbols.find_defined(objects[file]) if objects[file] else set()
        generated = work / f"{file}.generated.cpp"
        missing = set(versions) - defined
        generated.write_text(_signatures.write_source(missing, prototypes))
        linked = [*objects[file], compile_one(file, generated)]
        options = [f"-Wl,-soname,{file}"]
        if script := _symbols.make_version_script(versions, defined):
            (work / f"{file}.map").write_text(script)
            options.append(f"-Wl,--version-script={work / f'{file}.map'}")
        run_tool(compiler, "-shared", "-o", made / file, *linked, *options)


def _compile(
    compiler: str, work: Path, options: tuple[str, ...], library: str, source: Path
) -> Path:
    result = work / f"{library}.{source.stem}.o"
    run_tool(compiler, *_FLAGS, *options, "-c", source, "-o", result)
    return result


def _find_sources(sources: Path, file: str) -> Iterator[Path]:
    stem = file.partition(".so")[0]
    driver = _SOURCES[DRIVER.partition(".so")[0]][0]
    for name in _SOURCES.get(stem, ()):
        found = (
            [sources / name] if name.endswith(".cpp") else sorted((sources / name).glob("*.cpp"))
        )
        yield from (file for file in found if name == driver or file != sources / driver)


def _find_headers(torch: Torch) -> list[Path]:
    """The folders of NVIDIA's headers that pip installs beside torch."""
    return [
        folder
        for folder in sorted((torch.folder.parent / "nvidia").glob("*/include"))
        if folder.is_dir()
    ]


def _make_defines(torch: Torch) -> tuple[str, ...]:
    """The versions that the libraries report: torch refuses older ones than it was built with."""
    cudnn = _read_version(torch, "cudnn", (9, 99, 0))
    nccl = _read_version(torch, "nccl", (2, 99, 0))
    return (
        f"-DSTANDIN_CUDA_VERSION={torch.cuda_version}",
        f"-DSTANDIN_CUDNN_VERSION={cudnn[0] * 10000 + cudnn[1] * 100 + cudnn[2]}",
        f"-DSTANDIN_NCCL_VERSION={nccl[0] * 10000 + nccl[1] * 100 + nccl[2]}",
    )


def _read_version(torch: Torch, library: str, otherwise: tuple[int, ...]) -> tuple[int, ...]:
    """Of the package that pip installed beside torch."""
    for folder in torch.folder.parent.glob(f"nvidia_{library}_cu*.dist-info"):
        if match := re.search(r"-(\d+)\.(\d+)\.(\d+)", folder.name):
            return tuple(map(int, match.groups()))
    return otherwise
