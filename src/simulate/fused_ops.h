// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/ivalue.h>

#include <span>
#include <string_view>
#include <vector>

#include "tidegauge/export.h"

namespace tidegauge::simulation {

/// Makes the results of an op as torch's CUDA kernel does, from simulated arguments.
using FusedOp = std::vector<c10::IValue> (*)(std::span<const c10::IValue> arguments);

/// Null for an op without a row here. torch has a CUDA kernel for these ops; for other devices it
/// makes them of other ops. The rows are those of the dispatcher of a torch with CUDA: a test
/// compares them.
FusedOp find_fused_op(std::string_view op);
/// Their names, such as "aten::silu_backward".
TIDEGAUGE_API std::vector<std::string_view> list_fused_ops();

}  // namespace tidegauge::simulation
