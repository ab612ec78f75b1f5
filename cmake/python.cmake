# SPDX-License-Identifier: BSD-3-Clause
# Finds Python and pybind11. Both extensions use the pybind11 in torch's headers if there is torch,
# because only equal versions of pybind11 share types.
find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)

if(TIDEGAUGE_WITH_TORCH)
  set(pybind11_dir "${torch_dir}/include")
else()
  execute_process(COMMAND "${Python_EXECUTABLE}" -c "import pybind11; print(pybind11.get_include())"
    OUTPUT_VARIABLE pybind11_dir OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(NOT EXISTS "${pybind11_dir}/pybind11/pybind11.h")
  message(FATAL_ERROR "tidegauge: found no pybind11 for ${Python_EXECUTABLE} (looked in '${pybind11_dir}'). "
    "Run `${Python_EXECUTABLE} -m pip install pybind11`.")
endif()
