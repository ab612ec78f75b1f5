#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# run_sanitized.sh asan|tsan: runs the C++ tests of build/<name>, and for asan some Python tests on
# the package that was built there.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/common.sh

# libtorch is not instrumented, so what it does on its own is not judged: see the suppressions.
# Some tests ask for more memory than there is.
export ASAN_OPTIONS=detect_stack_use_after_return=1:allocator_may_return_null=1
export LSAN_OPTIONS=suppressions=$PWD/tools/lsan.supp:print_suppressions=0
export TSAN_OPTIONS=suppressions=$PWD/tools/tsan.supp:print_suppressions=0:halt_on_error=1:allocator_may_return_null=1
export UBSAN_OPTIONS=print_stacktrace=1

# The thread sanitizer of GCC 12 does not know the address layout of kernels that randomize more;
# a container may forbid to switch that off, and then mostly does not need it.
fixed_layout=$(setarch -R true 2>/dev/null && echo "setarch -R" || true)
$fixed_layout ctest --test-dir "build/$1" --output-on-failure --no-tests=error
[ "$1" = asan ] || exit 0

# A package of its own, so that the one in python/ stays as it was built.
packages=$PWD/build/asan/python
cmake --install build/asan --prefix "$packages/tidegauge" >/dev/null
(cd python && find tidegauge -name '*.py' -exec cp --parents {} "$packages" \;)
# libasan must come before all others, and sees exceptions only of a libstdc++ that is there at once.
preload=$(ldd build/asan/libtidegauge.so | awk '/lib(asan|stdc\+\+)\./ { print $3 }' | paste -sd:)

# Python leaks at exit by design, and all that is made from Python has it in its stack, so that no
# suppression tells our leaks from its own: C++ tests judge leaks, and mod/test_memory.py judges growth.
export ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0
run_python() {
  $fixed_layout env LD_PRELOAD="$preload" PYTHONMALLOC=malloc PYTHONPATH="$packages" \
    .venv/bin/python "$@"
}
loaded=$(run_python -c 'import tidegauge; print(tidegauge._C.__file__)')
[[ $loaded == "$packages"/* ]] || die "Python loads $loaded instead of what is in $packages."

# Training, checkpoints, exceptions, threads, resets, trackers that die, and exits while tracked. Not
# the soak: what was freed waits in a quarantine, so every process grows. Nor long loops.
# With --capture=sys, as a report goes to the descriptor, which pytest would keep when it dies.
unset TIDEGAUGE_LONG
run_python -m pytest -p no:cacheprovider --capture=sys -k "not loop_of" \
  tests/python/trackers/mod/test_{autograd,checkpoint,memory,restoration,threads,user_hooks}.py \
  tests/python/trackers/mem/test_{interpreter_exit,mem_tracker_object,mem_tracker_statistics}.py \
  tests/python/trackers/mem/test_mem_{random_programs,several_trackers}.py \
  tests/python/trackers/mem/test_mem_against_upstream.py::test_totals_are_those_of_the_allocator
