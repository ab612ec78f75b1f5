#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# run_tests.sh <build folder>: runs all tests of ctest, pytest and node; fails if any fails.
set -uo pipefail
cd "$(dirname "$0")/.."

ctest --test-dir "$1" --output-on-failure --no-tests=error
ctest_status=$?

# Two halves at the same time, one per core.
first_half=(tests/python/{trackers,cli,planning})
.venv/bin/python -m pytest -q "${first_half[@]/#/--ignore=}" >"$1/pytest_rest.log" 2>&1 &
.venv/bin/python -m pytest -q "${first_half[@]}" | tee "$1/pytest.log"
first_status=$?
wait $!
rest_status=$?
cat "$1/pytest_rest.log"
node_status=0
node_result="skipped, found no node; run: sudo apt-get install nodejs"
if command -v node >/dev/null; then
  node --test tests/web >"$1/node.log" 2>&1
  node_status=$?
  [ $node_status = 0 ] || cat "$1/node.log"
  node_result=$(grep -E '^# (pass|fail) ' "$1/node.log" | tr -d '#' | paste -sd,)
elif [ "${CI:-}" = true ]; then
  node_status=1
fi

echo
echo "C++:    $(grep -h '^\[  \(PASSED\|FAILED\)  \] [0-9]* test' "$1"/Testing/Temporary/LastTest.log |
  tr -s ' ' | paste -sd' ')"
# Not just the last line: libraries may print more when the process ends.
echo "Python: $(grep -hE '^[0-9]+ (passed|failed|skipped).* in ' "$1/pytest.log" "$1/pytest_rest.log" |
  paste -sd';')"
echo "Web:   $node_result"
exit $((ctest_status || first_status || rest_status || node_status))
