# SPDX-License-Identifier: BSD-3-Clause
# record_steps makes large traces, for tests/browser and benchmarks/reports.py.
include_guard(GLOBAL)
if(TARGET tidegauge_core)
  add_executable(record_steps EXCLUDE_FROM_ALL tests/browser/record_steps.cpp)
  target_link_libraries(record_steps PRIVATE tidegauge_options tidegauge_core)
  target_include_directories(record_steps PRIVATE src benchmarks)
endif()
