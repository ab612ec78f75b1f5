// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "capture/compat/torch_version.h"

namespace tidegauge {

/// True if torch keeps the workspaces of cuBLAS; false if each product requests its own and frees
/// it at once, as from torch 2.15 on.
inline constexpr bool kKeepsCublasWorkspaces = !TIDEGAUGE_TORCH_AT_LEAST(2, 15);

}  // namespace tidegauge
