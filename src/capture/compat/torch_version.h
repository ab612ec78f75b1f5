// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <torch/version.h>

#include <string>

/// For the preprocessor, where a difference between versions does not compile.
#define TIDEGAUGE_TORCH_AT_LEAST(major, minor) \
  (TORCH_VERSION_MAJOR * 1000 + TORCH_VERSION_MINOR >= (major) * 1000 + (minor))

namespace tidegauge {

/// The torch version that this library was compiled for.
inline std::string torch_version() { return TORCH_VERSION; }

}  // namespace tidegauge
