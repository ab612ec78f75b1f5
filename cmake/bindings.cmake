# SPDX-License-Identifier: BSD-3-Clause
# tidegauge._core has its own copy of the core, so that it works without libtidegauge and torch.
# tidegauge._C uses the copy in libtidegauge. Objects pass from one to the other through virtual
# functions (EventSource) and as plain values (PostMortem): see src/bindings/torch/module.cpp.
tidegauge_sources(common_bindings src/bindings/common)
tidegauge_sources(core_bindings src/bindings/core)
tidegauge_sources(torch_bindings src/bindings/torch)

# Compiled once, part of both extensions.
add_library(common_bindings OBJECT ${common_bindings})
target_link_libraries(common_bindings PRIVATE tidegauge_options Python::Module)
target_include_directories(common_bindings PRIVATE include src)
target_include_directories(common_bindings SYSTEM PRIVATE "${pybind11_dir}")
set_target_properties(common_bindings PROPERTIES
  POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden)

Python_add_library(_core MODULE WITH_SOABI ${core_bindings})
target_link_libraries(_core PRIVATE tidegauge_options common_bindings tidegauge_core)
target_link_options(_core PRIVATE LINKER:--exclude-libs,ALL)
target_include_directories(_core SYSTEM PRIVATE "${pybind11_dir}")
target_precompile_headers(_core PRIVATE cmake/pch_core_bindings.h)
set_target_properties(_core PROPERTIES CXX_VISIBILITY_PRESET hidden)

if(TARGET tidegauge)
  Python_add_library(_C MODULE WITH_SOABI ${torch_bindings})
  target_link_libraries(_C PRIVATE tidegauge tidegauge_options common_bindings tidegauge::torch_python)
  target_include_directories(_C PRIVATE src)
  target_precompile_headers(_C PRIVATE cmake/pch_bindings.h)
  set_target_properties(_C PROPERTIES CXX_VISIBILITY_PRESET hidden)
endif()
