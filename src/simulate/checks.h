// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <span>
#include <string_view>

namespace tidegauge::simulation {

/// Throws for arguments that an op's real kernels reject on every device but its meta kernel
/// accepts (the meta kernel may be a decomposition that computes with anything). Arguments that
/// only some devices reject pass.
using Check = void (*)(const c10::FunctionSchema& schema, std::span<const c10::IValue> arguments);

/// The check of an op, by its name with overload. Most ops have none: null.
Check find_check(std::string_view op);

}  // namespace tidegauge::simulation
