# SPDX-License-Identifier: BSD-3-Clause
find_package(benchmark REQUIRED)
include(cmake/record_steps.cmake)

tidegauge_sources(core_bench benchmarks/core)
if(core_bench AND TARGET tidegauge_core)
  # Reads the same recorded traces as the allocator's tests.
  add_executable(core_bench EXCLUDE_FROM_ALL ${core_bench} tests/allocator/recorded_traces.cpp)
  target_include_directories(core_bench PRIVATE tests/allocator)
  target_compile_definitions(core_bench PRIVATE TIDEGAUGE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_link_libraries(core_bench PRIVATE
    tidegauge_core tidegauge_options benchmark::benchmark benchmark::benchmark_main)
endif()

tidegauge_sources(mem_tracker_bench benchmarks/cpp)
if(mem_tracker_bench AND TARGET tidegauge)
  add_executable(mem_tracker_bench EXCLUDE_FROM_ALL ${mem_tracker_bench})
  target_link_libraries(mem_tracker_bench PRIVATE tidegauge tidegauge_options)
  if(TIDEGAUGE_FAST_PATHS)
    target_include_directories(mem_tracker_bench PRIVATE src)
    target_compile_definitions(mem_tracker_bench PRIVATE TIDEGAUGE_FAST_PATHS)
  endif()
endif()
