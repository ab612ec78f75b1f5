#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Says in one line what to install if the compiler or CMake is missing or too old.
set -euo pipefail
source "$(dirname "$0")/common.sh"

compiler=${CXX:-c++}
command -v "$compiler" >/dev/null ||
  die "found no C++ compiler ($compiler), need one for C++20; run: apt-get install g++"
echo '#include <concepts>' | "$compiler" -std=c++20 -fsyntax-only -x c++ - 2>/dev/null ||
  die "$compiler does not compile C++20, need GCC 12 or newer; run: apt-get install g++, or set CXX"

command -v cmake >/dev/null || die "found no CMake, need 3.25 or newer; run: apt-get install cmake"
version=$(cmake --version | sed -n '1s/[^0-9]*//p')
[ "$(printf '%s\n' 3.25 "$version" | sort -V | head -n 1)" = 3.25 ] ||
  die "found CMake $version, need 3.25 or newer; run: pip install --user cmake"
