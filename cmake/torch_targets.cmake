# SPDX-License-Identifier: BSD-3-Clause
# Targets for a torch that is installed as a folder: a pip package or an unpacked libtorch. Used by our
# build and installed for C++ projects that use tidegauge.
#
# torch's own TorchConfig.cmake needs the CUDA toolkit if torch has CUDA, and a CMake that knows its
# version. Neither tidegauge nor its users compile CUDA code, so neither is needed here.

# tidegauge_torch_version(<variable> <folder>): the version of torch in the folder; empty if it has none.
function(tidegauge_torch_version variable folder)
  set(${variable} "" PARENT_SCOPE)
  foreach(file version.py build-version)
    if(EXISTS "${folder}/${file}")
      file(STRINGS "${folder}/${file}" lines REGEX "^(__version__ = )?['\"]?[0-9]+\\.[0-9]+")
      if(lines MATCHES "([0-9]+\\.[0-9]+[^'\";]*)")
        set(${variable} "${CMAKE_MATCH_1}" PARENT_SCOPE)
        return()
      endif()
    endif()
  endforeach()
endfunction()

# tidegauge_add_torch(<folder>): makes the targets
#   tidegauge::torch_cpu     what libtidegauge itself links
#   tidegauge::torch         for programs: all of torch, with CUDA if this torch has it
#   tidegauge::torch_python  for Python extensions, if this torch has Python
function(tidegauge_add_torch folder)
  if(TARGET tidegauge::torch)
    return()
  endif()
  set(lib "${folder}/lib")
  foreach(name c10 torch_cpu torch)
    if(NOT EXISTS "${lib}/lib${name}.so")
      message(FATAL_ERROR "tidegauge: found no lib${name}.so in ${lib}. Install torch again.")
    endif()
  endforeach()

  add_library(tidegauge::c10 SHARED IMPORTED GLOBAL)
  set_target_properties(tidegauge::c10 PROPERTIES IMPORTED_LOCATION "${lib}/libc10.so")
  add_library(tidegauge::torch_cpu SHARED IMPORTED GLOBAL)
  set_target_properties(tidegauge::torch_cpu PROPERTIES
    IMPORTED_LOCATION "${lib}/libtorch_cpu.so"
    INTERFACE_INCLUDE_DIRECTORIES "${folder}/include;${folder}/include/torch/csrc/api/include"
    INTERFACE_COMPILE_FEATURES cxx_std_20
    INTERFACE_LINK_LIBRARIES tidegauge::c10)

  # libtorch.so has no symbols; it only loads the rest of torch. So a linker that drops unneeded
  # libraries would drop CUDA.
  add_library(tidegauge::torch INTERFACE IMPORTED GLOBAL)
  target_link_libraries(tidegauge::torch INTERFACE tidegauge::torch_cpu
    "-Wl,--push-state,--no-as-needed,${lib}/libtorch.so,--pop-state")

  if(EXISTS "${lib}/libtorch_python.so")
    add_library(tidegauge::torch_python SHARED IMPORTED GLOBAL)
    set_target_properties(tidegauge::torch_python PROPERTIES
      IMPORTED_LOCATION "${lib}/libtorch_python.so" INTERFACE_LINK_LIBRARIES tidegauge::torch_cpu)
  endif()
endfunction()
