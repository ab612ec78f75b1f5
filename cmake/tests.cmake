# SPDX-License-Identifier: BSD-3-Clause
# One executable per layer, because each start of a torch program takes a second.
find_package(GTest REQUIRED)
enable_testing()
add_custom_target(tests)

function(tidegauge_test name)
  add_executable(${name} EXCLUDE_FROM_ALL ${ARGN})
  add_dependencies(tests ${name})
  target_link_libraries(${name} PRIVATE tidegauge_options GTest::gtest_main)
  target_include_directories(${name} PRIVATE src tests)
  # Several tests define the same names; builds for another torch compile other files together.
  set_target_properties(${name} PROPERTIES UNITY_BUILD OFF)
  add_test(NAME ${name} COMMAND ${name})
  # GoogleTest accepts an executable without tests; we do not.
  set_tests_properties(${name} PROPERTIES FAIL_REGULAR_EXPRESSION "Running 0 tests" TIMEOUT 3600)
endfunction()

set(TIDEGAUGE_CORE_TESTS
  tests/core tests/trace tests/analyze tests/allocator tests/fit tests/plan tests/export
  CACHE STRING "Folders with tests that need no torch")
tidegauge_sources(core_tests ${TIDEGAUGE_CORE_TESTS})
if(core_tests AND TARGET tidegauge_core)
  tidegauge_test(core_tests ${core_tests})
  target_link_libraries(core_tests PRIVATE tidegauge_core)
  target_compile_definitions(core_tests PRIVATE TIDEGAUGE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
endif()

include(cmake/record_steps.cmake)
if(TARGET record_steps)
  add_dependencies(tests record_steps)
endif()

tidegauge_sources(capture_tests tests/capture tests/track tests/simulate)
if(NOT TIDEGAUGE_FAST_PATHS)
  tidegauge_sources(fast_tests tests/capture/fast)
  list(REMOVE_ITEM capture_tests ${fast_tests})
endif()
if(capture_tests AND TARGET tidegauge)
  # The objects of libtidegauge instead of the library, which hides the classes that it tests.
  tidegauge_test(capture_tests ${capture_tests} tests/allocator/recorded_traces.cpp
    $<TARGET_OBJECTS:tidegauge>)
  target_link_libraries(capture_tests PRIVATE tidegauge::torch_cpu tidegauge::torch tidegauge_core)
  target_compile_definitions(capture_tests PRIVATE TIDEGAUGE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_precompile_headers(capture_tests PRIVATE cmake/pch_tests.h)
endif()
