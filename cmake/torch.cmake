# SPDX-License-Identifier: BSD-3-Clause
# Finds torch, in Python's environment if there is one, and refuses versions that the sources do not
# know. TIDEGAUGE_TORCH_DIR names another folder, such as an unpacked libtorch.
include(torch_targets)
set(TIDEGAUGE_TORCH_DIR "" CACHE PATH "Folder of torch; empty: the torch of Python's environment")

if(TIDEGAUGE_WITH_PYTHON)
  find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)
endif()
set(torch_dir "${TIDEGAUGE_TORCH_DIR}")
if(NOT torch_dir AND Python_EXECUTABLE)
  # Finds torch without importing it, which would take seconds.
  execute_process(
    COMMAND "${Python_EXECUTABLE}" -c
      "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
    OUTPUT_VARIABLE torch_dir OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
endif()
if(NOT torch_dir AND DEFINED SKBUILD)
  message(FATAL_ERROR "tidegauge: the build found no torch. Run `pip install --no-build-isolation .`, so that it finds yours, "
    "or `TIDEGAUGE_WITH_TORCH=OFF pip install .` to install what needs no torch.")
elseif(NOT torch_dir)
  message(FATAL_ERROR "tidegauge: found no torch in ${Python_EXECUTABLE}. "
    "Run `pip install torch` with it, set TIDEGAUGE_TORCH_DIR, or configure with -DTIDEGAUGE_WITH_TORCH=OFF.")
endif()

tidegauge_torch_version(torch_version "${torch_dir}")
# One line in Python says which minor versions the sources know.
file(STRINGS python/tidegauge/_torch/compat.py torch_known REGEX "^SUPPORTED")
string(REGEX MATCHALL "[0-9]+\\.[0-9]+" torch_known "${torch_known}")
string(REGEX MATCH "^[0-9]+\\.[0-9]+" torch_minor "${torch_version}")
if(NOT torch_minor IN_LIST torch_known)
  list(JOIN torch_known ", " torch_known)
  message(FATAL_ERROR "tidegauge: found torch ${torch_version} in ${torch_dir}, but supports only ${torch_known}. "
    "Install one of these, or configure with -DTIDEGAUGE_WITH_TORCH=OFF to read traces only.")
endif()
tidegauge_add_torch("${torch_dir}")
