# SPDX-License-Identifier: BSD-3-Clause
"""Which functions of which CUDA libraries a torch needs, read from its own shared objects."""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from tidegauge.standin._errors import StandinError

# The libraries that we stand in for, and the names of their functions. cuFile is left alone: it
# does nothing without a GPU, and exports symbols of the C++ runtime.
_LIBRARIES = {
    "libcudart": r"(__)?cuda",
    "libcublasLt": "cublasLt",
    "libcublas": "cublas",
    "libcudnn": "cudnn",
    "libcusparseLt": "cusparseLt",
    "libcusparse": "cusparse",
    "libcusolver": "cusolver",
    "libcufft": "cufft",
    "libcurand": "curand",
    "libnvrtc": "nvrtc",
    "libcupti": "cupti",
    "libnccl": "nccl",
    "libnvshmem_host": "nvshmem",
}
DRIVER = "libcuda.so.1"
NVML = "libnvidia-ml.so.1"
_DRIVER_FUNCTION = re.compile(r"cu(?!File)[A-Z]")


def run_tool(*command: str | Path) -> str:
    """The output of a compiler tool. Raises StandinError with its first words if it fails."""
    words = [str(word) for word in command]
    try:
        ended = subprocess.run(words, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise StandinError(
            f"the stand-in for CUDA needs `{words[0]}`, which was not found. Install a C++ "
            "compiler with binutils, e.g. `apt-get install g++`."
        ) from None
    if ended.returncode != 0:
        problem = next((line for line in ended.stderr.splitlines() if "error" in line), "")
        raise StandinError(
            f"`{words[0]}` failed while the stand-in for CUDA was built: "
            f"{problem or ended.stderr.strip()[:300]}"
        )
    return ended.stdout


def find_objects(torch_folder: Path) -> list[Path]:
    """torch's own shared objects."""
    return sorted((torch_folder / "lib").glob("lib*.so"))


def find_needed(objects: Sequence[Path]) -> dict[str, dict[str, str]]:
    """The functions that torch needs, with their symbol versions ("" for none), by the file name of
    the library: {"libcudart.so.13": {"cudaMalloc": "libcudart.so.13", ...}, ...}."""
    dynamic = run_tool("readelf", "-d", "-W", *objects)
    files = {
        stem: file
        for file in re.findall(r"\(NEEDED\).*\[(.*?)\]", dynamic)
        if (stem := file.partition(".so")[0]) in _LIBRARIES
    }
    needed: dict[str, dict[str, str]] = {file: {} for file in files.values()}
    needed[DRIVER] = {}
    text = run_tool("nm", "-D", "--undefined-only", "--with-symbol-versions", *objects)
    for name, version in re.findall(r" [Uw] (\w+)(?:@+(\S+))?$", text, re.MULTILINE):
        if (file := _find_file(name, version, files)) is not None:
            needed[file][name] = version
    return needed


def _find_file(name: str, version: str, files: dict[str, str]) -> str | None:
    if version in files.values():
        return version
    for stem, pattern in _LIBRARIES.items():
        if re.match(pattern, name):
            return files.get(stem)
    return DRIVER if _DRIVER_FUNCTION.match(name) else None


def find_defined(objects: Sequence[Path]) -> set[str]:
    """The functions that compiled sources of ours define."""
    text = run_tool("nm", "--defined-only", *objects)
    return set(re.findall(r" T (\w+)$", text, re.MULTILINE))


def make_version_script(versions: dict[str, str], defined: set[str]) -> str:
    """Gives each function the symbol version that torch asks for; empty if it asks for none."""
    nodes: dict[str, set[str]] = defaultdict(set)
    for name, version in versions.items():
        if version:
            nodes[version].add(name)
    if not nodes:
        return ""
    # What only other libraries ask for has the version of the rest.
    largest = max(nodes, key=lambda version: len(nodes[version]))
    nodes[largest] |= {name for name in defined - set(versions) if "tidegauge" not in name}
    return "".join(
        f"{version} {{ global: {' '.join(f'{name};' for name in sorted(names))} }};\n"
        for version, names in nodes.items()
    )
