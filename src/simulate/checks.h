// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <span>
#include <string_view>

namespace tidegauge::simulation {

/// Throws for what the kernels of an op refuse and its meta kernel lets pass, which may be a
/// decomposition that computes with anything. What only some devices refuse is let pass.
using Check = void (*)(const c10::FunctionSchema& schema, std::span<const c10::IValue> arguments);

/// By name of the op, with overload; null for nearly all.
Check find_check(std::string_view op);

}  // namespace tidegauge::simulation
