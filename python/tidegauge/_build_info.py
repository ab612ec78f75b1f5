# SPDX-License-Identifier: BSD-3-Clause
"""Where a C++ project finds libtidegauge."""

from pathlib import Path

#: Pass it as `-DCMAKE_PREFIX_PATH`, then `find_package(tidegauge)` works; torch is found by itself.
cmake_prefix_path: str = str(Path(__file__).resolve().parent)
