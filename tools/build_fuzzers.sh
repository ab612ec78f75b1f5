#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Builds the programs of tests/fuzz/targets into build/fuzzers, with clang and its libFuzzer, which
# are installed from Debian if they are missing. CLANG names another clang++.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/common.sh

# can_fuzz <compiler>: it compiles C++20 and has libFuzzer.
can_fuzz() {
  echo '#include <ranges>
    extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' |
    "$1" -std=c++20 -fsanitize=fuzzer,address -x c++ - -o /dev/null 2>/dev/null
}

find_clang() {
  for compiler in ${CLANG:-clang++-19 clang++}; do
    if can_fuzz "$compiler"; then
      echo "$compiler"
      return
    fi
  done
}

compiler=$(find_clang)
if [ -z "$compiler" ]; then
  echo "installing clang-19"
  install_debian clang-19 && install_debian libclang-rt-19-dev || true
  compiler=$(find_clang)
fi
[ -n "$compiler" ] || die "found no clang with libFuzzer; run:" \
  "sudo apt-get install clang-19 libclang-rt-19-dev, or set CLANG"
cmake -S . -G Ninja --log-level=ERROR -B build/fuzzers -DCMAKE_CXX_COMPILER="$compiler" \
  -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O1 -DTIDEGAUGE_WITH_TORCH=OFF \
  -DTIDEGAUGE_BUILD_FUZZERS=ON -DTIDEGAUGE_SANITIZE=address,undefined >/dev/null
cmake --build build/fuzzers
