#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# run_sanitized.sh asan|tsan: runs the C++ tests of build/<name>.
set -euo pipefail
cd "$(dirname "$0")/.."

# libtorch is not instrumented, so what it does on its own is not judged: see the suppressions.
export ASAN_OPTIONS=detect_stack_use_after_return=1
export LSAN_OPTIONS=suppressions=$PWD/tools/lsan.supp:print_suppressions=0
export TSAN_OPTIONS=suppressions=$PWD/tools/tsan.supp:print_suppressions=0:halt_on_error=1
export UBSAN_OPTIONS=print_stacktrace=1

# The thread sanitizer of GCC 12 does not know the address layout of kernels that randomize more;
# a container may forbid to switch that off, and then mostly does not need it.
fixed_layout=$(setarch -R true 2>/dev/null && echo "setarch -R" || true)
$fixed_layout ctest --test-dir "build/$1" --output-on-failure --no-tests=error
