# SPDX-License-Identifier: BSD-3-Clause
"""The version, and where a C++ project finds libtidegauge."""

from pathlib import Path

# pyproject.toml and CMake read this line.
__version__ = "0.1.0"

#: Pass it as `-DCMAKE_PREFIX_PATH`. Then `find_package(tidegauge)` finds tidegauge and torch.
cmake_prefix_path: str = str(Path(__file__).resolve().parent)
