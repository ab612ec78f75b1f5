# SPDX-License-Identifier: BSD-3-Clause
"""The CUDA adapter is built only if torch has CUDA. This test only compiles it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from torch.utils import cpp_extension

ROOT = Path(__file__).parents[2]


def find_cuda_headers() -> Path | None:
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    for home in filter(None, homes):
        if (Path(home) / "include" / "cuda_runtime_api.h").exists():
            return Path(home) / "include"
    return None


@pytest.mark.long
def test_adapter_compiles() -> None:
    headers, compiler = find_cuda_headers(), shutil.which("c++")
    if headers is None:
        pytest.skip("found no cuda_runtime_api.h; set CUDA_HOME to compile the CUDA adapter")
    assert compiler is not None, "found no compiler, although one built the package"
    folders = [str(headers), *cpp_extension.include_paths()]
    ended = subprocess.run(
        [
            *(compiler, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror"),
            # A header that only torch's build with CUDA generates.
            "-DC10_CUDA_NO_CMAKE_CONFIGURE_FILE",
            *(f"-I{ROOT / own}" for own in ("include", "src")),
            *(word for folder in folders for word in ("-isystem", folder)),
            str(ROOT / "src/capture/compat/cuda/cuda_trace.cpp"),
        ],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ended.returncode == 0, ended.stderr[:4000]
