# SPDX-License-Identifier: BSD-3-Clause
# The trace file is an SQLite database (docs/trace-format.md).
find_package(SQLite3 3.37)
if(NOT SQLite3_FOUND)
  message(FATAL_ERROR "tidegauge: found no SQLite 3.37 or newer with its header (needed for trace files). "
    "Run: sudo apt-get install libsqlite3-dev, or set SQLite3_ROOT.")
endif()
find_package(Threads REQUIRED)
