# SPDX-License-Identifier: BSD-3-Clause
# One program per file in tests/fuzz/targets, for libFuzzer. Needs clang and only the core.
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL Clang)
  message(FATAL_ERROR "tidegauge: the fuzzers need clang, which has libFuzzer; this is "
    "${CMAKE_CXX_COMPILER_ID}. Set CMAKE_CXX_COMPILER.")
endif()
add_library(fuzz_support STATIC tests/allocator/naive_allocator.cpp)
target_link_libraries(fuzz_support PRIVATE tidegauge_options PUBLIC tidegauge_core)
target_include_directories(fuzz_support PUBLIC tests)

tidegauge_sources(fuzzers tests/fuzz/targets)
foreach(source ${fuzzers})
  cmake_path(GET source STEM name)
  add_executable(fuzz_${name} ${source})
  target_compile_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
  target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
  target_link_libraries(fuzz_${name} PRIVATE tidegauge_options fuzz_support)
endforeach()
