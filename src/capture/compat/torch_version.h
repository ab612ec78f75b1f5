// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <torch/version.h>

#include <string>

namespace tidegauge {

/// The version of torch that this library was compiled for.
inline std::string torch_version() { return TORCH_VERSION; }

}  // namespace tidegauge
