# SPDX-License-Identifier: BSD-3-Clause
# Finds torch, in Python's environment if there is one, and refuses a torch other than the one that the sources were written for.
if(TIDEGAUGE_WITH_PYTHON)
  find_package(Python 3.11 REQUIRED COMPONENTS Interpreter Development.Module)
endif()
if(Python_EXECUTABLE)
  # Finds torch without importing it, which would take seconds.
  execute_process(
    COMMAND "${Python_EXECUTABLE}" -c
      "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
    OUTPUT_VARIABLE torch_dir OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  if(NOT torch_dir)
    message(FATAL_ERROR "tidegauge: found no torch in ${Python_EXECUTABLE}. "
      "Run `pip install torch==2.13.0` with it, or configure with -DTIDEGAUGE_WITH_TORCH=OFF.")
  endif()
  list(PREPEND CMAKE_PREFIX_PATH "${torch_dir}/share/cmake")
endif()

find_package(Torch QUIET REQUIRED)

# The package refuses to load on any other minor version; one line says which one that is.
file(STRINGS python/tidegauge/_torch/compat.py torch_needed REGEX "^BUILT_FOR")
string(REGEX MATCH "[0-9]+\\.[0-9]+" torch_needed "${torch_needed}")
if(NOT Torch_VERSION MATCHES "^${torch_needed}\\.")
  message(FATAL_ERROR "tidegauge: found torch ${Torch_VERSION}, needs ${torch_needed}. "
    "Run `pip install 'torch==${torch_needed}.*'`.")
endif()

get_filename_component(torch_lib_dir "${TORCH_LIBRARY}" DIRECTORY)
if(TIDEGAUGE_WITH_PYTHON)
  find_library(TORCH_PYTHON_LIBRARY torch_python HINTS "${torch_lib_dir}" REQUIRED)
  add_library(torch_python SHARED IMPORTED)
  set_target_properties(torch_python PROPERTIES IMPORTED_LOCATION "${TORCH_PYTHON_LIBRARY}")
endif()
