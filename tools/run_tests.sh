#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# run_tests.sh <build folder>: runs ctest and pytest, always both; fails if either does.
set -uo pipefail
cd "$(dirname "$0")/.."

ctest --test-dir "$1" --output-on-failure --no-tests=error
ctest_status=$?
.venv/bin/python -m pytest -q | tee "$1/pytest.log"
pytest_status=$?

echo
echo "C++:    $(grep -h '^\[  \(PASSED\|FAILED\)  \] [0-9]* test' "$1"/Testing/Temporary/LastTest.log |
  tr -s ' ' | paste -sd' ')"
echo "Python: $(tail -n 1 "$1/pytest.log")"
exit $((ctest_status || pytest_status))
