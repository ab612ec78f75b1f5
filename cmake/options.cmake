# SPDX-License-Identifier: BSD-3-Clause
# Compiler options for all of our own code.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

find_program(CCACHE ccache)
if(CCACHE)
  # ccache needs this setting (and the flag below) to cache files with precompiled headers.
  set(CMAKE_CXX_COMPILER_LAUNCHER
    ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE})
endif()

# GCC 12's -Wrestrict wrongly warns about `"x" + std::string` (GCC bug 105651).
set(old_gcc $<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>)
add_library(tidegauge_options INTERFACE)
# Our functions are never interposed, so calls within a library may be direct.
target_compile_options(tidegauge_options INTERFACE -fno-semantic-interposition -fno-plt)
target_link_options(tidegauge_options INTERFACE LINKER:-Bsymbolic-functions)
target_compile_options(tidegauge_options INTERFACE -Wall -Wextra $<${old_gcc}:-Wno-restrict>
  $<$<BOOL:${TIDEGAUGE_WERROR}>:-Werror>
  $<$<AND:$<BOOL:${CCACHE}>,$<CXX_COMPILER_ID:GNU>>:-fpch-preprocess>)
if(TIDEGAUGE_SANITIZE)
  # vptr needs the type information of torch's own hidden classes.
  set(sanitize -fsanitize=${TIDEGAUGE_SANITIZE} -fno-sanitize-recover=all -fno-sanitize=vptr)
  # With sanitizers, GCC 12 wrongly reports uninitialized values in torch's headers.
  target_compile_options(tidegauge_options INTERFACE ${sanitize} -fno-omit-frame-pointer -g1
    $<${old_gcc}:-Wno-maybe-uninitialized>)
  target_link_options(tidegauge_options INTERFACE ${sanitize})
endif()

if(TIDEGAUGE_BUILD_FUZZERS)
  # Counts which code an input reaches. clang warns about libstdc++ and about designated initializers
  # that name only some members.
  target_compile_options(tidegauge_options INTERFACE -fsanitize=fuzzer-no-link
    -Wno-deprecated-declarations -Wno-missing-field-initializers)
endif()

# tidegauge_sources(<variable> <folder>...): all .cpp files in and below the folders that exist.
function(tidegauge_sources variable)
  list(TRANSFORM ARGN REPLACE "(.+)" "${PROJECT_SOURCE_DIR}/\\1/*.cpp")
  file(GLOB_RECURSE found CONFIGURE_DEPENDS ${ARGN})
  set(${variable} ${found} PARENT_SCOPE)
endfunction()
