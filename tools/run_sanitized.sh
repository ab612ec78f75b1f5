#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# run_sanitized.sh asan|asan-core|tsan: runs the C++ tests of build/<name>, and for asan also some Python tests
# with the package built there.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/common.sh

# libtorch is not instrumented, so its own reports are suppressed. Some tests allocate more memory
# than the machine has.
export ASAN_OPTIONS=detect_stack_use_after_return=1:allocator_may_return_null=1
export LSAN_OPTIONS=suppressions=$PWD/tools/lsan.supp:print_suppressions=0
export TSAN_OPTIONS=suppressions=$PWD/tools/tsan.supp:print_suppressions=0:halt_on_error=1:allocator_may_return_null=1
export UBSAN_OPTIONS=print_stacktrace=1

# GCC 12's thread sanitizer fails with the address randomization of newer kernels. A container may
# forbid switching it off; then it is usually not needed.
fixed_layout=$(setarch -R true 2>/dev/null && echo "setarch -R" || true)
$fixed_layout ctest --test-dir "build/$1" --output-on-failure --no-tests=error
[ "$1" = asan ] || exit 0

# A separate package, so that the one in python/ stays unchanged.
packages=$PWD/build/asan/python
cmake --install build/asan --prefix "$packages/tidegauge" >/dev/null
(cd python && find tidegauge -name '*.py' -exec cp --parents {} "$packages" \;)
# libasan must be loaded first, and sees exceptions only if libstdc++ is loaded with it.
preload=$(ldd build/asan/libtidegauge.so | awk '/lib(asan|stdc\+\+)\./ { print $3 }' | paste -sd:)

# Python leaks at exit by design, and every allocation made from Python has it in its stack, so no
# suppression can separate our leaks from Python's. The C++ tests check for leaks, and
# mod/test_memory.py checks for growth.
export ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0
run_python() {
  $fixed_layout env LD_PRELOAD="$preload" PYTHONMALLOC=malloc PYTHONPATH="$packages" \
    .venv/bin/python "$@"
}
loaded=$(run_python -c 'import tidegauge; print(tidegauge._C.__file__)')
[[ $loaded == "$packages"/* ]] || die "Python loads $loaded instead of the package in $packages."

# Training, checkpoints, exceptions, threads, resets, deleted trackers, and exits while tracking. Not
# the soak test: asan keeps freed memory in quarantine, so every process grows. No long loops.
# --capture=sys: asan reports to the file descriptor, which pytest would hold back when it dies.
unset TIDEGAUGE_LONG
run_python -m pytest -p no:cacheprovider --capture=sys -k "not loop_of" \
  tests/python/trackers/mod/test_{autograd,checkpoint,memory,restoration,threads,user_hooks}.py \
  tests/python/trackers/mem/test_{interpreter_exit,mem_tracker_object,mem_tracker_statistics}.py \
  tests/python/trackers/mem/test_mem_{random_programs,several_trackers}.py \
  tests/python/trackers/mem/test_mem_against_upstream.py::test_totals_equal_the_allocator
