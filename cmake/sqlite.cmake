# SPDX-License-Identifier: BSD-3-Clause
# The trace file is an SQLite database (docs/trace-format.md).
#
# A process must not have two copies of SQLite that open the same file: closing it in one removes the
# locks of the other. So libtidegauge and _core share the shared library; a build of one of them may
# be static.
if(TIDEGAUGE_STATIC_SQLITE)
  if(TIDEGAUGE_WITH_TORCH AND TIDEGAUGE_WITH_PYTHON)
    message(FATAL_ERROR "tidegauge: TIDEGAUGE_STATIC_SQLITE would put SQLite into both libtidegauge and _core. "
      "Turn it off, or one of TIDEGAUGE_WITH_TORCH and TIDEGAUGE_WITH_PYTHON.")
  endif()
  find_library(SQLite3_LIBRARY NAMES libsqlite3.a)
  if(NOT SQLite3_LIBRARY)
    message(STATUS "tidegauge: found no libsqlite3.a; linking the shared library")
  endif()
endif()
find_package(SQLite3 3.37)
if(NOT SQLite3_FOUND)
  message(FATAL_ERROR "tidegauge: found no SQLite 3.37 or newer with its header (needed for trace files). "
    "Run: sudo apt-get install libsqlite3-dev, or set SQLite3_ROOT.")
endif()
find_package(Threads REQUIRED)
