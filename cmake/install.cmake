# SPDX-License-Identifier: BSD-3-Clause
# The same layout for an install prefix and for the wheel: include/, lib/, share/cmake/tidegauge/. In
# the wheel the prefix is the package folder, so that the path to torch stays within site-packages.
if(TARGET _core)
  install(TARGETS _core LIBRARY DESTINATION .)
  configure_file(cmake/_built_for.py.in _built_for.py @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/_built_for.py" DESTINATION .)
  if(SKBUILD_METADATA_DIR)  # a wheel's .dist-info, for those who read it without importing us
    file(CONFIGURE OUTPUT build.json CONTENT
      "{\"torch_minor\": \"@torch_minor@\", \"build_type\": \"@CMAKE_BUILD_TYPE@\"}\n" @ONLY)
    install(FILES "${PROJECT_BINARY_DIR}/build.json" DESTINATION "${SKBUILD_METADATA_DIR}")
  endif()
endif()
if(NOT TARGET tidegauge)
  return()
endif()

include(CMakePackageConfigHelpers)
set(config_dir share/cmake/tidegauge)
set(lib_rpath "$ORIGIN/../../torch/lib")
set(extension_rpath "$ORIGIN/lib;$ORIGIN/../torch/lib")
if(NOT DEFINED SKBUILD)
  # Outside a wheel, use the torch of the build.
  list(APPEND lib_rpath "${torch_dir}/lib")
  list(APPEND extension_rpath "${torch_dir}/lib")
  set(torch_at_build_time "${torch_dir}")
endif()

configure_package_config_file(cmake/tidegaugeConfig.cmake.in tidegaugeConfig.cmake
  INSTALL_DESTINATION ${config_dir})
write_basic_package_version_file(tidegaugeConfigVersion.cmake COMPATIBILITY SameMinorVersion)

set_target_properties(tidegauge tidegauge_cuda PROPERTIES INSTALL_RPATH "${lib_rpath}")
install(TARGETS tidegauge EXPORT tidegaugeTargets LIBRARY DESTINATION lib)
install(TARGETS tidegauge_cuda LIBRARY DESTINATION lib)
install(DIRECTORY include/ DESTINATION include)
# A user's machine compiles them, for its own torch.
install(DIRECTORY src/standin DESTINATION share FILES_MATCHING PATTERN "*.cpp" PATTERN "*.h")
install(EXPORT tidegaugeTargets NAMESPACE tidegauge:: DESTINATION ${config_dir})
install(FILES "${PROJECT_BINARY_DIR}/tidegaugeConfig.cmake"
  "${PROJECT_BINARY_DIR}/tidegaugeConfigVersion.cmake" cmake/torch_targets.cmake
  DESTINATION ${config_dir})

if(TARGET _C)
  set_target_properties(_C PROPERTIES INSTALL_RPATH "${extension_rpath}")
  install(TARGETS _C LIBRARY DESTINATION .)
endif()
