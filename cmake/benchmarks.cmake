# SPDX-License-Identifier: BSD-3-Clause
find_package(benchmark REQUIRED)

tidegauge_sources(core_bench benchmarks/core)
if(core_bench AND TARGET tidegauge_core)
  add_executable(core_bench EXCLUDE_FROM_ALL ${core_bench})
  target_link_libraries(core_bench PRIVATE
    tidegauge_core tidegauge_options benchmark::benchmark benchmark::benchmark_main)
endif()
