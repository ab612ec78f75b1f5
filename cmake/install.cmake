# SPDX-License-Identifier: BSD-3-Clause
# One layout for a prefix and for the wheel: include/, lib/, share/cmake/tidegauge/. In the wheel the
# prefix is the package folder, so that torch is found by a path that does not leave site-packages.
include(CMakePackageConfigHelpers)

set(TIDEGAUGE_TORCH_DIR "")
set(config_dir share/cmake/tidegauge)
set(lib_dir ${CMAKE_INSTALL_LIBDIR})
set_target_properties(tidegauge PROPERTIES INSTALL_RPATH "$ORIGIN/../../torch/lib")
if(DEFINED SKBUILD)
  set(lib_dir lib)
else()
  # Outside of a wheel torch stays where it was at build time.
  set(TIDEGAUGE_TORCH_DIR "${Torch_DIR}")
  set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)
  set_target_properties(tidegauge PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
endif()

configure_package_config_file(cmake/tidegaugeConfig.cmake.in tidegaugeConfig.cmake
  INSTALL_DESTINATION ${config_dir})
write_basic_package_version_file(tidegaugeConfigVersion.cmake COMPATIBILITY SameMinorVersion)

install(TARGETS tidegauge EXPORT tidegaugeTargets LIBRARY DESTINATION ${lib_dir} COMPONENT cpp)
install(DIRECTORY include/ DESTINATION include COMPONENT cpp)
install(EXPORT tidegaugeTargets NAMESPACE tidegauge:: DESTINATION ${config_dir} COMPONENT cpp)
install(FILES "${PROJECT_BINARY_DIR}/tidegaugeConfig.cmake"
  "${PROJECT_BINARY_DIR}/tidegaugeConfigVersion.cmake" DESTINATION ${config_dir} COMPONENT cpp)
