// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>

#include "simulate/kernel_call.h"

namespace tidegauge::simulation {

/// Null for an op whose CUDA kernel requests nothing but its results. `op`: its name with the
/// overload, such as "aten::sum.dim_IntList".
KernelMemory find_kernel_memory(std::string_view op);

}  // namespace tidegauge::simulation
